"""What a child process writes to standard error: shown as it comes, and its last lines kept, to say why it
ended.
"""

import os
import re
import tempfile
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

KEPT_LINES = 300  # of several processes each a stack, and what torchrun says of each
TORCHRUN = re.compile(r"[EIW]\d{4} .*torch/distributed/elastic/")  # how its log lines begin
FAILED = re.compile(r"failed \(exitcode: (-?\d+)\)")


class ErrorOutput:
    """`file` is for the child to write to. A file and no pipe: the child can go on writing, and saving, when
    this process is gone.
    """

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with this
        self._shown = 0
        self._lines: deque[str] = deque([""], maxlen=KEPT_LINES)  # the last one is not ended yet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def show(self) -> None:
        """Passes on to this process's own standard error what has come since."""
        # At a place of its own: the child writes where it shares the file's.
        while data := os.pread(self.file.fileno(), 1 << 16, self._shown):
            self._shown += len(data)
            with suppress(OSError), open(2, "wb", closefd=False) as here:
                here.write(data)
            first, *others = data.decode(errors="replace").split("\n")
            self._lines[-1] += first
            self._lines.extend(others)

    def ended(self, status: int) -> tuple[int, list[str]]:
        """The exit status of the trainer and its last lines: of one under torchrun those before torchrun
        tells the same at length.
        """
        lines = [line.rstrip() for line in self._lines if line.strip()]
        for at in reversed(range(len(lines))):
            if TORCHRUN.match(lines[at]) and (found := FAILED.search(lines[at])):
                return int(found[1]), [line for line in lines[:at] if not TORCHRUN.match(line)]
        return status, lines
