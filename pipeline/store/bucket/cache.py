"""Which files of a directory could be fetched again, and which of them leave when it is full: those that were
used least recently.
"""

import logging
import shutil
import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.store.errors import PipelineError

log = logging.getLogger(__name__)

# Threads that upload and fetch share a connection, which Python 3.13 refuses to two of them at once.
_CONNECTION = threading.Lock()
NAME = "cache.sqlite"
WAIT_SECONDS = 60
# A file is opened as soon as it is there, and one that is open can be read to its end after its removal.
IN_USE_SECONDS = 600.0
NOTED_EVERY_SECONDS = 60.0
TABLE = "create table if not exists files (path text primary key, bytes integer, used real) without rowid"


class CacheError(PipelineError):
    """What is in the cache cannot be recorded."""


@dataclass(frozen=True)
class Cache:
    """The files in a directory that could be fetched again. They take at most `limit` bytes, by default half
    of the disk.
    """

    root: Path
    limit: int | None = None
    _noted: dict[Path, float] = field(default_factory=dict, compare=False, repr=False)

    def add(self, path: Path) -> None:
        """Lets the file be removed from now on."""
        row = (self._name(path), path.stat().st_size, time.time())
        self._execute("insert or replace into files values (?, ?, ?)", row)
        self._noted[path] = time.monotonic()

    def used(self, path: Path) -> None:
        """The file is in use now."""
        now = time.monotonic()
        if now - self._noted.get(path, -NOTED_EVERY_SECONDS) >= NOTED_EVERY_SECONDS:
            self._noted[path] = now
            row = (time.time(), self._name(path))
            self._execute("update files set used = ? where path = ?", row)

    def make_room(self, size: int) -> None:
        """Removes files until `size` bytes more fit, but none that was used in the last ten minutes."""
        ((held,),) = self._execute("select coalesce(sum(bytes), 0) from files", ())
        limit = shutil.disk_usage(self.root).total // 2 if self.limit is None else self.limit
        excess = held + size - limit
        if excess <= 0:
            return
        query = "select path, bytes from files where used < ? order by used"
        for name, length in self._execute(query, (time.time() - IN_USE_SECONDS,)):
            (self.root / name).unlink(missing_ok=True)
            self.forget(self.root / name)
            excess -= length
            if excess <= 0:
                return
        log.warning(
            "%s holds %.1f GB more than its limit of %.1f GB, all in use: raise GROUNDWORK_CACHE_BYTES",
            self.root,
            excess / 1e9,
            limit / 1e9,
        )

    def forget(self, path: Path) -> None:
        """Removes a file that no longer exists from the record."""
        self._noted.pop(path, None)
        self._execute("delete from files where path = ?", (self._name(path),))

    def _execute(self, query: str, row: tuple[str | float, ...]) -> list[Any]:
        """The rows of the result. Raises CacheError."""
        try:
            with _CONNECTION:
                return self._table.execute(query, row).fetchall()
        except sqlite3.OperationalError as error:
            raise CacheError(
                f"{self.root / NAME} cannot be used ({error}): free some space, or name a directory on "
                "another disk in GROUNDWORK_CACHE"
            ) from error

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @cached_property
    def _table(self) -> sqlite3.Connection:
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / NAME
        table = sqlite3.connect(path, WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            table.execute(TABLE)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # a power cut damaged it; what it does not know stays
            with suppress(OSError):
                path.unlink()
            table = sqlite3.connect(path, WAIT_SECONDS, isolation_level=None, check_same_thread=False)
            table.execute(TABLE)
        return table
