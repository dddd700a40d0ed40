"""Standard input, output and errors, which may be closed, be full or have lost their reader."""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout


def keep() -> None:
    """Keeps the numbers of streams that are closed: the next file that is opened would get them, and what is
    printed. What is printed to a closed standard output is an error, as in programs that are not Python.
    """
    while (unused := os.open(os.devnull, os.O_RDONLY)) <= 2:
        continue
    os.close(unused)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115, it stays
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


def lost() -> str:
    """Why what was printed cannot be written, and is discarded; empty if it is written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        write_nowhere()
        return os.strerror(error.errno or 0)
    return ""


def write_nowhere() -> None:
    """Discards what Python still writes while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
