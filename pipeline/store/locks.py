"""Locks on files, which end with the process that holds them, however it ends."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from trainer.system.run_directory import try_lock

WAITS = ".waits.lock"  # in the directory of a run: shared while a trainer works in it, or has just ended

log = logging.getLogger(__name__)


@contextmanager
def exclusive(path: Path, told: str) -> Iterator[None]:
    """Waits until nobody else holds the lock. `told` is what the log says then."""
    with _opened(path) as lock:
        if not try_lock(lock.fileno()):
            log.info(told)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Any number of processes hold this lock together; nobody gets `alone` meanwhile."""
    with _opened(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Yields whether no other process holds the lock. If so, none can get it before this exits."""
    with _opened(path) as lock:
        yield try_lock(lock.fileno())


@contextmanager
def idle_run(run: Path) -> Iterator[bool]:
    """Yields whether no trainer works in, or waits for, a run's directory. None can start meanwhile."""
    names = (".lock", WAITS) if run.exists() else ()
    with ExitStack() as stack:
        yield all(stack.enter_context(alone(run / name)) for name in names)


def _opened(path: Path) -> IO[str]:
    """Where nothing can be written, a lock that is there will do: a run that makes nothing goes on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError:
        with suppress(OSError):
            return path.open()
        raise
