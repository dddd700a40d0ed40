"""A run's log.txt: what the console says, and why the run ended."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path

from trainer.system.errors import TrainerError

LINES_BEFORE_IT_IS_OPENED = 10_000

log = logging.getLogger("trainer")


@contextmanager
def log_file() -> Iterator[Callable[[Path], None]]:
    """Yields a function that names the file to append to. The file gets what was logged before, what is
    logged after, and the error that ends the run.

    A run that is refused before its first step leaves the file as it is.
    """
    # Keeps lines until it knows a file, and then passes on each at once.
    handler = MemoryHandler(LINES_BEFORE_IT_IS_OPENED, flushLevel=logging.NOTSET)

    def append_to(path: Path) -> None:
        file = logging.FileHandler(path, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        handler.setTarget(file)
        handler.flush()

    log.addHandler(handler)
    try:
        yield append_to
    except Exception as error:
        # The console gets the error elsewhere: this record goes to the file alone.
        known = isinstance(error, TrainerError)
        trace = None if known else (type(error), error, error.__traceback__)
        message = f"failed: {error if known else type(error).__name__}"
        handler.handle(log.makeRecord(log.name, logging.ERROR, "", 0, message, (), trace))
        raise
    finally:
        log.removeHandler(handler)
        if handler.target is not None:
            handler.target.close()
