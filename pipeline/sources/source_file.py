"""The files of a source, on this machine or behind any URL that fsspec opens."""

import errno
import hashlib
import io
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar, cast

from pipeline.sources.source import SourceError
from pipeline.store.file_hashes import FileState, seen
from pipeline.store.fingerprint import READ_SIZE, file_sha256

REMOTE_BLOCK_BYTES = 8 << 20
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.5
MOST_WAIT_SECONDS = 120  # that a server may ask for
TAGS = ("ETag", "etag", "Content-MD5", "md5Hash", "checksum")
TIMES = ("mtime", "LastModified", "Last-Modified", "last_modified", "updated", "created")

TRY_AGAIN = (408, 425, 429)  # of the answers of web servers that begin with 4

Hash = Callable[[Path], str]
T = TypeVar("T")


def may_list(directory: Path) -> bool:
    return os.access(directory, os.R_OK | os.X_OK)


@dataclass(frozen=True)
class LocalFile:
    """A file of this machine. Like those of RemoteFile, its methods raise OSError."""

    path: Path
    listed_as: tuple[FileState, str] | None = None  # what it was when its sha256 was taken, and the sha256

    @property
    def place(self) -> str:
        """The resolved path, which is equal for two names of one file."""
        return str(self.path.resolve())

    @property
    def directory(self) -> bool:
        return self.path.is_dir()

    def check(self) -> os.stat_result:
        """Raises OSError if it is neither a file nor a directory, or a directory that may not be listed:
        opening a pipe would wait for somebody who writes to it, and a device may have no end.
        """
        found = self.path.stat()
        mode = found.st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "a pipe, socket or device, not a file", str(self.path))
        if stat.S_ISDIR(mode) and not may_list(self.path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))
        return found

    def open(self) -> BinaryIO:
        """Opens the file, but gives no more than its sha256 was taken of: bytes may be
        appended at any time.
        """
        self.check()
        handle = self.path.open("rb", buffering=0)
        raw = handle if self.listed_as is None else _First(handle, self.listed_as[0][0])
        return io.BufferedReader(raw, READ_SIZE)

    def size(self) -> int:
        return self.path.stat().st_size if self.listed_as is None else self.listed_as[0][0]

    def listed(self, sha256: Hash = file_sha256) -> tuple[Self, str]:
        """The file as it is now, and its fingerprint."""
        before = seen(self.check())
        found = sha256(self.path)
        return replace(self, listed_as=(before, found)), found

    def is_as_listed(self) -> bool:
        """Whether it still begins with the content that its sha256 was taken of."""
        if self.listed_as is None:
            return True
        before, found = self.listed_as
        return seen(self.path.stat()) == before or file_sha256(self.path, before[0]) == found


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
        """The size in bytes; None if a web server does not report it."""
        size = self.info.get("size")
        return None if size is None else int(size)

    @property
    def listed_as(self) -> dict[str, Any]:
        return self.info

    def listed(self, sha256: Hash = file_sha256) -> tuple[Self, str]:
        """The file, and its fingerprint. For an object store that is its size with its tag or time of change,
        else the hash of the content.
        """
        for name in (*TAGS, *TIMES):
            if self.info.get(name):
                return self, f"{name.lower()} {self.info[name]} {self.size()}"
        with self.open() as file:
            return self, hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()

    def is_as_listed(self) -> bool:
        """Whether the file still has the size, and a tag or time, with which it was listed. Servers that
        mirror each other may have other tags for the same content.
        """
        self.filesystem.invalidate_cache(self.path)
        now = info_of(self.filesystem, self.path)
        # Listing and asking may write the same tag with and without quotes, the same time as other types.
        pairs = [(self.info.get(name), now.get(name)) for name in (*TAGS, *TIMES)]
        known = [(was, is_) for was, is_ in pairs if was and type(was) is type(is_)]
        same = [was for was, is_ in known if str(was).strip('"') == str(is_).strip('"')]
        return bool(self.info.get("size") == now.get("size") and (same or not known))


SourceFile = LocalFile | RemoteFile  # can be opened any number of times


def size_of(file: SourceFile) -> int:
    """The bytes of a file on disk; 0 if they are not known, and for a directory."""
    try:
        return 0 if file.directory else file.size() or 0
    except OSError:
        return 0


class _First(io.RawIOBase):
    """The first `size` bytes of a file."""

    def __init__(self, handle: io.FileIO, size: int):
        self._handle = handle
        self._size = size

    def readable(self) -> bool:
        return True

    seekable = readable

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            return self._handle.seek(self._size + offset)
        return self._handle.seek(offset, whence)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left = max(0, self._size - self._handle.tell())
        return self._handle.readinto(buffer[:left]) or 0

    def close(self) -> None:
        self._handle.close()
        super().close()


class _Resuming(io.RawIOBase):
    """A remote file that is opened again at the same byte after a broken connection. Of a web server that
    sends only whole files, what comes before that byte is downloaded again.

    Raises SourceError after ATTEMPTS failures in a row, because a bad connection is not bad input.
    """

    def __init__(self, file: RemoteFile):
        self._file = file
        self._size = file.size()
        self._position = 0
        self._block_bytes = REMOTE_BLOCK_BYTES  # 0: the whole file in one answer
        self._handle: BinaryIO | None = None
        self._persistently(self._opened)

    def readable(self) -> bool:
        return True

    seekable = readable

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self._size is None:
            raise OSError(errno.ESPIPE, "the server does not say how long the file is")
        self._position = offset + (0, self._position, self._size or 0)[whence]
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._persistently(lambda: self._read(len(buffer)))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def close(self) -> None:
        self._let_go()
        super().close()

    def _read(self, size: int) -> bytes:
        handle = self._opened()
        if handle.tell() != self._position:
            if self._block_bytes:
                handle.seek(self._position)
            else:
                _skip(handle, self._position - handle.tell())
        content = handle.read(size)
        if not content and self._position < (self._size or 0):
            raise OSError(f"the server sent no more, of {self._size:,} bytes")
        return content

    def _opened(self) -> BinaryIO:
        if self._handle and not self._block_bytes and self._handle.tell() > self._position:
            self._let_go()
        if self._handle is None:
            opened = self._file.filesystem.open(self._file.path, "rb", block_size=self._block_bytes)
            self._handle = cast(BinaryIO, opened)
        return self._handle

    def _let_go(self) -> None:
        if self._handle is not None:
            self._handle.close()
        self._handle = None

    def _persistently(self, read: Callable[[], T]) -> T:
        try:
            return persistently(read, self._failed)
        except (FileNotFoundError, PermissionError):
            raise
        except Exception as error:  # each file system raises its own classes
            raise SourceError(
                f"{self._file.place} broke off at byte {self._position}; run again to resume: {error}"
            ) from error

    def _failed(self, error: Exception) -> None:
        self._let_go()
        if isinstance(error, ValueError) and "http" in self._file.filesystem.protocol:
            self._block_bytes = 0  # the server does not answer with ranges


def info_of(filesystem: Any, path: str) -> dict[str, Any]:
    """What a file system says of a file. Raises FileNotFoundError if there is none, and what a web server
    answers or why it does not, which fsspec hides behind FileNotFoundError.
    """

    def ask() -> dict[str, Any]:
        try:
            return cast(dict[str, Any], filesystem.info(path))
        except FileNotFoundError as error:
            answer = error.__cause__
            if not isinstance(answer, Exception) or getattr(answer, "status", None) in (404, 410):
                raise
            raise answer from None

    return persistently(ask)


def is_busy(error: Exception) -> bool:
    """Whether a web server answered that it cannot answer now."""
    status = _status(error)
    return status is not None and (status >= 500 or status in TRY_AGAIN)


def _is_final(error: Exception) -> bool:
    refused = _status(error) is not None and not is_busy(error)
    return refused or isinstance(error, FileNotFoundError | PermissionError)


def persistently(
    read: Callable[[], T],
    failed: Callable[[Exception], None] = lambda _: None,
    is_final: Callable[[Exception], bool] = _is_final,
) -> T:
    """What `read` returns, at one of ATTEMPTS. In between it calls `failed`, and waits as long as the server
    asks for. Raises at once an error that `is_final`, since another attempt would not change it.
    """
    for attempt in range(ATTEMPTS):
        try:
            return read()
        except Exception as error:  # each file system raises its own classes
            failed(error)
            if attempt == ATTEMPTS - 1 or is_final(error):
                raise
            time.sleep(max(FIRST_WAIT_SECONDS * 2**attempt, _asked_seconds(error)))
    raise AssertionError("every attempt returns or raises")


def _status(error: Exception) -> int | None:
    """The status of a web server's answer, as aiohttp and httpx have it."""
    answer = getattr(error, "response", error)
    status = getattr(answer, "status_code", getattr(answer, "status", None))
    return status if isinstance(status, int) and status >= 300 else None


def _asked_seconds(error: Exception) -> int:
    """How long the server asks to wait, in `Retry-After`."""
    headers = getattr(getattr(error, "response", error), "headers", None) or {}
    asked = headers.get("Retry-After", "")
    return min(int(asked), MOST_WAIT_SECONDS) if asked.isdecimal() else 0


def _skip(handle: BinaryIO, size: int) -> None:
    """Reads so many bytes. Raises OSError when there are fewer."""
    while size:
        passed = len(handle.read(min(size, READ_SIZE)))
        if not passed:
            raise OSError(f"the server sent {size:,} bytes less than before")
        size -= passed
