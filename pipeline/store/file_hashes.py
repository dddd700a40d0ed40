"""Hashes of files on this machine, remembered beside the store, so that an unchanged corpus is not read again
to find that out.
"""

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
    """As git's index does it: a file of the same size, time and inode has the content it had.

    A file that was modified in the last two seconds is hashed each time: another change could leave its time
    as it is.
    """

    root: Path

    def sha256(self, path: Path) -> str:
        """Raises OSError when the file cannot be read."""
        began = time.time_ns()
        stat = path.stat()
        known = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        place = str(path.resolve())
        with self._table() as table:
            found = table.execute(
                "select sha256 from hashes where path = ? and (size, modified, inode) = (?, ?, ?)",
                (place, *known),
            ).fetchone()
        if found:
            with path.open("rb"):  # what may no longer be read is no longer known
                return str(found[0])
        digest = file_sha256(path)
        if stat.st_mtime_ns < began - RACY_NANOSECONDS:
            with self._table() as table:
                table.execute("insert or replace into hashes values (?, ?, ?, ?, ?)", (place, *known, digest))
        return digest

    @contextmanager
    def _table(self) -> Iterator[sqlite3.Connection]:
        self.root.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.root / NAME, timeout=WAIT_SECONDS)) as table, table:
            table.execute(TABLE)
            yield table
