"""Hashes of files on this machine, cached in the store, so that an unchanged corpus is not read again."""

import logging
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pipeline.store.fingerprint import file_sha256

log = logging.getLogger(__name__)

NAME = "file-hashes.sqlite"
RACY_NANOSECONDS = 2_000_000_000
WAIT_SECONDS = 60
UNREADABLE = ""
PUT = "insert or replace into files values (?, ?, ?, ?, ?, ?, ?)"
TABLE = (
    "create table if not exists files (path text primary key, size integer, modified integer, changed "
    "integer, inode integer, sha256 text, read integer) without rowid"
)
BELOW = "from files where path > ? and path < ?"


Row = tuple[str | int, ...]
FileState = tuple[int, int, int, int]  # size, times of modification and change, inode
Remembered = tuple[int, int, int, int, str]  # size, times of modification and change, inode, sha256


@dataclass(frozen=True)
class FileHashes:
    """Like git's index: a file whose size, mtime, ctime and inode are unchanged has the same content.

    A file that was modified in the last two seconds is always hashed: another change could leave its time
    unchanged.
    """

    root: Path

    def sha256(self, path: Path) -> str:
        """The sha256 of the file, in hex. Raises OSError when the file cannot be read."""
        began = time.time_ns()
        row = _row(path)
        query = "select sha256 from files where (path, size, modified, changed, inode) = (?, ?, ?, ?, ?)"
        cached = self._execute(query, row)
        if cached and cached[0][0] != UNREADABLE:
            os.close(os.open(path, os.O_RDONLY))  # raises when the file is no longer readable
            return str(cached[0][0])
        digest = file_sha256(path)
        if int(row[2]) < began - RACY_NANOSECONDS:
            self._put([(*row, digest)])
        return digest

    def read(self, paths: Sequence[Path]) -> list[str]:
        """The sha256 of files that do not change any more, whatever is remembered of them, which this
        replaces; UNREADABLE for what cannot be read.
        """
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            rows = list(threads.map(_hashed, paths))
        self._put(rows)
        return [str(row[-1]) for row in rows]

    def remember(self, written: Mapping[Path, str]) -> None:
        """Records the sha256 of files that were just written and do not change any more."""
        self._put([(*_row(path), sha256) for path, sha256 in written.items()])

    def remembered(self, directory: Path) -> dict[str, Remembered]:
        """What is recorded of the files below `directory`, by their path in it."""
        start, _ = below = _below(directory)
        rows = self._execute(f"select path, size, modified, changed, inode, sha256 {BELOW}", below) or []
        return {name.removeprefix(start): tuple(rest) for name, *rest in rows}

    def last_read(self, directory: Path) -> int:
        """When the longest unread file below `directory` was read or written: ns since 1970; 0 if never."""
        rows = self._execute(f"select min(read) {BELOW}", _below(directory))
        return rows[0][0] or 0 if rows else 0

    def _put(self, rows: Sequence[Row]) -> None:
        """Several rows in one transaction, which takes as long as a single one."""
        if rows:
            self._execute("begin immediate", ())
            for row in rows:
                self._execute(PUT, (*row, time.time_ns()))
            self._execute("commit", ())

    def _execute(self, query: str, row: Row) -> list[Any] | None:
        """The rows of the result. A damaged cache is made anew, and one that cannot be used at the moment is
        done without: it is not worth a failed run.
        """
        try:
            return self._table.execute(query, row).fetchall()
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError as error:
            path = self.root / NAME
            log.warning("%s is damaged (%s); it is made again, so every file is hashed again", path, error)
            if table := self.__dict__.pop("_table", None):
                table.close()
            for suffix in ("", "-journal"):
                path.with_name(NAME + suffix).unlink(missing_ok=True)
            return self._table.execute(query, row).fetchall()

    @cached_property
    def _table(self) -> sqlite3.Connection:
        self.root.mkdir(parents=True, exist_ok=True)
        table = sqlite3.connect(
            self.root / NAME, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        table.execute("pragma synchronous = off")  # if a power cut damages the cache, it is made anew
        table.execute(TABLE)
        return table


def _name(path: Path) -> str:
    return os.fsencode(_resolved(path)).decode(errors="backslashreplace")


def _resolved(path: Path) -> str:
    """The path without links. Of a folder with many files, those on the way to it are followed once."""
    with suppress(OSError):  # the folder is gone
        if path.name not in ("", "..") and not path.is_symlink():
            folder = path.parent
            found = folder.stat()
            return f"{_resolved_folder(str(folder), found.st_dev, found.st_ino)}/{path.name}"
    return os.path.realpath(path)


@lru_cache(maxsize=1 << 10)
def _resolved_folder(folder: str, *_: int) -> str:
    """`folder` without links. Its device and inode are others once a link leads elsewhere."""
    return os.path.realpath(folder).rstrip("/")


def _below(directory: Path) -> tuple[str, str]:
    """What the names of all files below `directory` lie between."""
    return f"{_name(directory)}/", f"{_name(directory)}0"  # 0 is the character after /


def _row(path: Path) -> Row:
    return _name(path), *seen(path.stat())


def seen(stat: os.stat_result) -> FileState:
    """What tells one content of a file from another."""
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _hashed(path: Path) -> Row:
    """The row of a file. Missing files have none of their own."""
    row: Row = _name(path), 0, 0, 0, 0
    with suppress(OSError):
        row = _row(path)
        return *row, file_sha256(path)
    return *row, UNREADABLE
