"""Hashes of files on this machine, cached in the store, so that an unchanged corpus is not read again."""

import logging
import os
import sqlite3
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.store.fingerprint import file_sha256

log = logging.getLogger(__name__)

NAME = "file-hashes.sqlite"
RACY_NANOSECONDS = 2_000_000_000
WAIT_SECONDS = 60
TABLE = (
    "create table if not exists hashes (path text primary key, size integer, modified integer, inode "
    "integer, sha256 text) without rowid"
)


@dataclass(frozen=True)
class FileHashes:
    """Like git's index: a file whose size, modification time and inode are unchanged has the same content.

    A file that was modified in the last two seconds is always hashed: another change could leave its time
    unchanged.
    """

    root: Path

    def sha256(self, path: Path) -> str:
        """The sha256 of the file, in hex. Raises OSError when the file cannot be read."""
        began = time.time_ns()
        stat = path.stat()
        name = os.fsencode(path.resolve()).decode(errors="backslashreplace")
        row = (name, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        query = "select sha256 from hashes where (path, size, modified, inode) = (?, ?, ?, ?)"
        cached = self._execute(query, row)
        if cached:
            with path.open("rb"):  # raises when the file is no longer readable
                return str(cached[0])
        digest = file_sha256(path)
        if stat.st_mtime_ns < began - RACY_NANOSECONDS:
            self._execute("insert or replace into hashes values (?, ?, ?, ?, ?)", (*row, digest))
        return digest

    def _execute(self, query: str, row: tuple[str | int, ...]) -> Any:
        """The first row of the result. A damaged cache is made anew: it is not worth a failed run."""
        try:
            return self._table.execute(query, row).fetchone()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            path = self.root / NAME
            log.warning("%s is damaged (%s); it is made anew, so every file is hashed again", path, error)
            if table := self.__dict__.pop("_table", None):
                table.close()
            for suffix in ("", "-journal"):
                path.with_name(NAME + suffix).unlink(missing_ok=True)
            return self._table.execute(query, row).fetchone()

    @cached_property
    def _table(self) -> sqlite3.Connection:
        self.root.mkdir(parents=True, exist_ok=True)
        table = sqlite3.connect(
            self.root / NAME, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        table.execute("pragma synchronous = off")  # if a power cut damages the cache, it is made anew
        table.execute(TABLE)
        return table
