"""Errors that a user can correct, and their exit statuses."""

import difflib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

# Exit statuses: of a ProcessLostError, of a TrainerError, of a `check` that fails, and EX_TEMPFAIL of
# sysexits.h: stopped on request, everything saved; run again to resume.
PROCESS_LOST, USER_ERROR, NOT_PASSED, RESUMABLE = 1, 2, 3, 75

OUT_OF_MEMORY = (
    "memory ran out: end other programs, raise the limit that `ulimit -v` shows, or do less at once"
)


class TrainerError(Exception):
    """An error that the user can correct: printed as one message, exit status 2, nothing overwritten."""


class ToldByMainError(TrainerError):
    """An error that another process raises too, and prints."""


class ProcessLostError(Exception):
    """Another process of the training is gone or does not answer: printed as one message. Not an error of the
    user, so torchrun starts the processes again.
    """


@contextmanager
def in_every_process() -> Iterator[None]:
    """Lets the first process of each machine alone print a TrainerError that the code in this context raises
    in every process of the machine: another machine may have another file, or none.
    """
    try:
        yield
    except TrainerError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1":
            raise
        raise ToldByMainError(*error.args) from error


def is_out_of_memory(error: MemoryError | ImportError) -> bool:
    """Whether memory ran out, perhaps while the system loaded a library."""
    return isinstance(error, MemoryError) or "failed to map segment" in str(error)


def install(extra: str) -> str:
    """The command that installs one of the extras of pyproject.toml. In the checkout: the package index has
    another package named groundwork.
    """
    return f"`.venv/bin/pip install -e '.[{extra}]'`"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Suggests the known name that is most like `name`; `otherwise` if none is like it."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else otherwise


def first_line(error: BaseException) -> str:
    """The first line of a library's error, without its details; the name of its class if it has no text."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def reason(error: BaseException) -> str:
    """Why a file cannot be read, in one line, for a message that names the file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return " ".join(str(error).split()) or repr(error)
