"""A directory of results: under its name only when whole."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.store.errors import PipelineError
from trainer.system.durable import sync


class OutputError(PipelineError):
    """A directory that results cannot be written to."""


@contextmanager
def atomic_directory(out: Path) -> Iterator[Path]:
    """A directory to fill: on a clean exit it is on disk and called `out`, otherwise it is gone.

    Raises OutputError when there is something at `out` already or it cannot be written.
    """
    out = out.absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} is there already: name another directory, or delete it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as temporary:
            directory = Path(temporary) / out.name
            directory.mkdir()
            yield directory
            for path in directory.rglob("*"):
                sync(path)
            sync(directory)
            directory.rename(out)
        sync(out.parent)
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written ({error.strerror or error}): name another directory, or make room"
        ) from error
