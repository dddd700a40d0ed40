"""Directories that a user named: complete under their name or absent, and errors that name them."""

import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.store.errors import PipelineError
from trainer.system.durable import FULL, rename_directory, sync_directory
from trainer.system.run_directory import try_lock

UNWRITABLE = (*FULL, errno.EROFS)
CLOSED = (errno.EACCES, errno.EPERM)


class OutputError(PipelineError):
    """A directory that results cannot be written to."""


@contextmanager
def output_directory(out: Path) -> Iterator[Path]:
    """Yields a directory to fill. On a clean exit it is on disk under the name `out`, otherwise it is
    deleted.

    Unlike the trainer's `atomic_directory` it replaces nothing. Of two processes with the same `out` the
    second to finish fails. Raises OutputError when `out` is a file or a directory that is not empty, and when
    it cannot be written.
    """
    out = out.absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} already exists: name another directory, or delete it")
    with output_errors(out), temporary_directory(out.parent, f".{out.name}.tmp-") as temporary:
        directory = temporary / out.name
        directory.mkdir()
        yield directory
        sync_directory(directory)
        rename_directory(directory, out)


@contextmanager
def temporary_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A directory in `parent`, which is deleted in the end. What a killed process left under the same prefix
    is deleted now: a process holds a lock on its directory while it lives.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{glob.escape(prefix)}*"):
        with _locked(left) as mine:
            if mine:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name, _locked(Path(name)):
        yield Path(name)


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Whether no other process holds the lock on the directory; if so, this one does."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def output_errors(out: Path) -> Iterator[None]:
    """Turns an OSError into an OutputError that names `out`. Raises it, too, for a name that is not UTF-8."""
    _check_name(out)
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written ({error.strerror or error}): name another directory, or free some space"
        ) from error


@contextmanager
def writable(directory: Path) -> Iterator[None]:
    """Turns the OSError of a disk that is full or may only be read into an OutputError that names what is in
    `directory`. Raises it, too, for a name that is not UTF-8.
    """
    _check_name(directory)
    try:
        yield
    except OSError as error:
        named = error.filename if isinstance(error.filename, str) else ""
        closed = error.errno in CLOSED and Path(named).is_relative_to(directory)
        if not (closed or error.errno in UNWRITABLE):
            raise
        raise OutputError(
            f"{named or directory} cannot be written ({error.strerror or error}): free some space, or change "
            f"who may write to {directory}, and run again"
        ) from error


def _check_name(directory: Path) -> None:
    """pyarrow opens files by names in UTF-8 only."""
    try:
        str(directory).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(directory).decode(errors="replace")
        raise OutputError(f"{shown} cannot be written: its name is not UTF-8; choose another") from error
