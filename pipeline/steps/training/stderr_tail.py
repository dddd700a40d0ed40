"""The standard error of a child process: shown as it arrives, its last lines kept to explain a failure."""

import os
import re
import tempfile
from collections import deque
from contextlib import suppress

from trainer.system.errors import USER_ERROR

KEPT_LINES = 300  # a stack trace of each of several processes, and torchrun's report on each
TORCHRUN = re.compile(r"[EIW]\d{4} .*torch/distributed/elastic/")  # the beginning of its log lines
STOPPED, TOLD = "death signal", re.compile("trainer: ")  # a trainer with a mistake ends torchrun
FAILED = re.compile(r"failed \(exitcode: (-?\d+)\)")


class ErrorOutput:
    """The child writes to `file`. It is not a pipe, so that the child can write, and save, after this process
    is gone.
    """

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with this
        self._shown = 0
        self._lines: deque[str] = deque([""], maxlen=KEPT_LINES)  # the last one is incomplete

    def close(self) -> None:
        self.file.close()

    def show(self) -> None:
        """Copies new output to the standard error of this process."""
        # pread, since the child shares the offset of the file.
        while data := os.pread(self.file.fileno(), 1 << 16, self._shown):
            self._shown += len(data)
            with suppress(OSError), open(2, "wb", closefd=False) as stderr:
                stderr.write(data)
            first, *others = data.decode(errors="replace").split("\n")
            self._lines[-1] += first
            self._lines.extend(others)

    def ended(self, status: int) -> tuple[int, list[str]]:
        """The exit status and the last lines of the trainer. Under torchrun: the status of the process that
        failed and the lines before torchrun's report on it.
        """
        lines = [line.rstrip() for line in self._lines if line.strip()]
        for at in reversed(range(len(lines))):
            if TORCHRUN.match(lines[at]) and (failed := FAILED.search(lines[at])):
                return int(failed[1]), [line for line in lines[:at] if not TORCHRUN.match(line)]
        for at, line in enumerate(lines):
            if TORCHRUN.match(line) and STOPPED in line and any(map(TOLD.match, lines[:at])):
                return USER_ERROR, [line for line in lines[:at] if not TORCHRUN.match(line)]
        return status, lines
