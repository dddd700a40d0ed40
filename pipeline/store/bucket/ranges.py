"""Reads a few columns of a Parquet file in a bucket without fetching its text."""

import io
from pathlib import Path

from pipeline.store.bucket.mirror import Mirror

LIGHT = {"id", "source"}  # columns that are a small part of a file with text
WORTH_BYTES = 4_000_000  # of a file, below which a few requests take longer than all of it


def light(mirror: Mirror, path: Path, columns: list[str] | None) -> "Path | Remote":
    """What to open for these columns of a file: the file, or the parts of the object that are asked for. Of
    these, pages are checked by their own checksums only.
    """
    if columns is None or not LIGHT.issuperset(columns) or path.exists():
        return mirror.fetch(path)
    there = mirror.bucket.head(mirror.key(path))
    if there is None or there.bytes < WORTH_BYTES:
        return mirror.fetch(path)
    return Remote(mirror, mirror.key(path), there.bytes)


class Remote(io.RawIOBase):
    """An object as a file that can only be read."""

    def __init__(self, mirror: Mirror, key: str, size: int):
        self._mirror = mirror
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        size = self._size - self._at if size < 0 else min(size, self._size - self._at)
        content = self._mirror.bucket.read(self._key, self._at, size) if size > 0 else b""
        self._at += len(content)
        return content
