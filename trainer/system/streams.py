"""Standard input, output and errors, which may be closed, be full or have lost their reader."""

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, BinaryIO, cast

from trainer.system.errors import USER_ERROR


class NotPrintedError(OSError):
    """Standard output is full or closed, or nobody reads it any more. What is printed from then on is
    discarded.
    """

    def ended(self, program: str) -> int:
        """Says so, unless whoever reads, such as `head`, has enough. Returns the exit status."""
        if self.errno == errno.EPIPE:
            return 128 + signal.SIGPIPE
        print(f"{program}: what is printed cannot be written: {self.strerror}", file=sys.stderr, flush=True)
        return USER_ERROR


class _Output(io.FileIO):
    """Standard output, whose errors are told from those of other files."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # also for what Python writes while it ends
            raise NotPrintedError(error.errno, error.strerror) from None


def keep() -> None:
    """Keeps the numbers of streams that are closed: the next file that is opened would get them, and what is
    printed. What cannot be written to standard output raises NotPrintedError, also where that is closed.
    """
    while (unused := os.open(os.devnull, os.O_RDONLY)) <= 2:
        continue
    os.close(unused)
    output, before = _Output(1, "w", closefd=False), sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    if isinstance(before, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            cast(BinaryIO, output) if before.write_through else io.BufferedWriter(output),
            before.encoding,
            before.errors,
            line_buffering=before.line_buffering,
            write_through=before.write_through,
        )
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123


@contextmanager
def showing_help(arguments: Sequence[str]) -> Iterator[None]:
    """Writes the help that is asked for. argparse itself goes on as if what cannot be written was."""
    if not {"-h", "--help"} & {*arguments}:
        yield
        return
    shown = io.StringIO()
    try:
        with redirect_stdout(shown):
            yield
    finally:
        print(shown.getvalue(), end="", flush=True)
