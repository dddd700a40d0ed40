"""The files of a source, on this machine or behind any URL that fsspec opens."""

import errno
import hashlib
import io
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pipeline.sources.source import SourceError
from pipeline.store.fingerprint import READ_SIZE, file_sha256

REMOTE_BLOCK_BYTES = 8 << 20
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.5
TAGS = ("ETag", "etag", "Content-MD5", "md5Hash", "checksum")
TIMES = ("mtime", "LastModified", "Last-Modified", "last_modified", "updated", "created")

Hash = Callable[[Path], str]


def may_list(directory: Path) -> bool:
    return os.access(directory, os.R_OK | os.X_OK)


@dataclass(frozen=True)
class LocalFile:
    """A file of this machine. Like those of RemoteFile, its methods raise OSError."""

    path: Path

    @property
    def place(self) -> str:
        """The resolved path, which is equal for two names of one file."""
        return str(self.path.resolve())

    @property
    def directory(self) -> bool:
        return self.path.is_dir()

    def check(self) -> None:
        """Raises OSError if it is neither a file nor a directory, or a directory that may not be listed:
        opening a pipe would wait for somebody who writes to it, and a device may have no end.
        """
        mode = self.path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "a pipe, socket or device, not a file", str(self.path))
        if stat.S_ISDIR(mode) and not may_list(self.path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))

    def open(self) -> BinaryIO:
        self.check()
        return self.path.open("rb")

    def size(self) -> int:
        return self.path.stat().st_size

    def fingerprint(self, sha256: Hash = file_sha256) -> str:
        self.check()
        return sha256(self.path)


@dataclass(frozen=True)
class RemoteFile:
    """A file of an fsspec file system. `info` is the result of the file system's `info`."""

    filesystem: Any
    path: str
    info: dict[str, Any]

    @property
    def place(self) -> str:
        return str(self.filesystem.unstrip_protocol(self.path))

    @property
    def directory(self) -> bool:
        return bool(self.info.get("type") == "directory")

    def check(self) -> None:
        """Object stores and web servers hold files and directories only."""

    def open(self) -> BinaryIO:
        return io.BufferedReader(_Resuming(self), READ_SIZE)

    def size(self) -> int | None:
        """In bytes; None if a web server does not report it."""
        size = self.info.get("size")
        return None if size is None else int(size)

    def fingerprint(self, sha256: Hash = file_sha256) -> str:
        """The size with the tag or time of change, of an object store; else the hash of the content."""
        for name in (*TAGS, *TIMES):
            if self.info.get(name):
                return f"{name.lower()} {self.info[name]} {self.size()}"
        with self.open() as file:
            return hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()


SourceFile = LocalFile | RemoteFile  # can be opened any number of times


def size_of(file: SourceFile) -> int:
    """The bytes of a file on disk; 0 if they are not known, and for a directory."""
    try:
        return 0 if file.directory else file.size() or 0
    except OSError:
        return 0


class _Resuming(io.RawIOBase):
    """A remote file that is opened again at the same byte after a broken connection.

    Raises SourceError after ATTEMPTS failures in a row, because a bad connection is not bad input.
    """

    def __init__(self, file: RemoteFile):
        self._file = file
        self._position = 0
        self._handle = self._opened()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._handle.seekable())

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = int(self._handle.seek(offset, whence))
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._persistently(lambda: self._handle.read(len(buffer)))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._handle.close()
        super().close()

    def _persistently(self, read: Callable[[], bytes]) -> bytes:
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
                    self._handle = self._opened()
                    self._handle.seek(self._position)
                return read()
            except (FileNotFoundError, PermissionError):
                raise
            except Exception as error:  # each file system raises its own classes
                last = error
        raise SourceError(
            f"{self._file.place} broke off at byte {self._position}; run again to resume: {last}"
        ) from last

    def _opened(self) -> BinaryIO:
        return cast(
            BinaryIO, self._file.filesystem.open(self._file.path, "rb", block_size=REMOTE_BLOCK_BYTES)
        )
