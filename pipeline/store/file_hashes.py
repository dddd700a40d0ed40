"""Hashes of files on this machine, cached in the store, so that an unchanged corpus is not read again."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.store.fingerprint import file_sha256

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
        with self._table() as table:
            query = "select sha256 from hashes where (path, size, modified, inode) = (?, ?, ?, ?)"
            cached = table.execute(query, row).fetchone()
        if cached:
            with path.open("rb"):  # raises when the file is no longer readable
                return str(cached[0])
        digest = file_sha256(path)
        if stat.st_mtime_ns < began - RACY_NANOSECONDS:
            with self._table() as table:
                table.execute("insert or replace into hashes values (?, ?, ?, ?, ?)", (*row, digest))
        return digest

    @contextmanager
    def _table(self) -> Iterator[sqlite3.Connection]:
        self.root.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.root / NAME, timeout=WAIT_SECONDS)) as table, table:
            table.execute(TABLE)
            yield table
