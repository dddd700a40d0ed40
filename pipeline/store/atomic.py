"""A directory of results that a user named."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.store.errors import PipelineError
from trainer.system.durable import rename_directory, sync_directory


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
    with output_errors(out):
        temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            sync_directory(temporary)
            rename_directory(temporary, out)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextmanager
def output_errors(out: Path) -> Iterator[None]:
    """Turns an OSError into an OutputError that names `out`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written ({error.strerror or error}): name another directory, or free some space"
        ) from error
