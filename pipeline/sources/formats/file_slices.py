"""A large file, divided into slices that several workers read."""

import io
import zlib
from collections.abc import Iterator
from typing import cast

from pipeline.sources.formats.streams import BLOCK_BYTES
from pipeline.sources.source import Slice
from pipeline.sources.source_file import SourceFile
from pipeline.store.fingerprint import READ_SIZE

MOST_WINDOW = 4 << 20  # bytes within which the beginning of a slice is chosen
KEY_BYTES = 256  # of what follows, by which it is chosen


def overlaps_itself(separator: bytes) -> bool:
    """Whether it can begin within itself. Where it stands in a file then depends on all that is before."""
    return any(separator.endswith(separator[:size]) for size in range(1, len(separator)))


def read_slice(file: SourceFile, slice: Slice) -> Iterator[bytes]:
    """Its content in blocks. Raises OSError."""
    with file.open() as handle:
        handle.seek(slice.start)
        left = slice.bytes
        while left and (block := cast(io.BufferedReader, handle).read1(min(left, BLOCK_BYTES))):
            left -= len(block)
            yield block


def slices(file: SourceFile, size: int, separator: bytes) -> list[Slice]:
    """Divides a file behind separators, which must not overlap themselves, into slices of at least `size`
    bytes, and of little more where there are many. Reads the file once. Raises OSError.

    Of the places where a slice can begin, the one with the smallest key is taken, so that a change of the
    file moves only the cuts beside it.
    """
    found: list[Slice] = []
    with file.open() as opened:
        handle = cast(io.BufferedReader, opened)
        total, window = handle.seek(0, io.SEEK_END), min(MOST_WINDOW, size // 8 + 1)
        start = before = key = 0
        while total - start >= 2 * size:
            end, next_key = _cut(handle, start + size, window, separator)
            found.append(Slice(start, end, before, key))
            before += _count(handle, start, end)
            start, key = end, next_key
        if start < total:
            found.append(Slice(start, total, before, key))
    return found


def _cut(handle: io.BufferedReader, least: int, window: int, separator: bytes) -> tuple[int, int]:
    """The place behind a separator that has the smallest key within the `window` bytes from `least` on, and
    its key; if there is none, the next such place, else the end of the file.
    """
    position = handle.seek(least)
    while seen := handle.read(window + KEY_BYTES):
        candidates, at = [], seen.find(separator, 0, window)
        while at >= 0:
            at += len(separator)
            candidates.append((zlib.crc32(seen[at : at + KEY_BYTES]), position + at))
            at = seen.find(separator, at, window)
        if candidates:
            key, begin = min(candidates)
            return begin, key
        more = max(1, min(len(seen), window) - len(separator) + 1)  # one may have begun at the end
        position = handle.seek(position + more)
    return position, 0


def _count(handle: io.BufferedReader, start: int, end: int) -> int:
    """How many lines end between two positions."""
    handle.seek(start)
    found, left = 0, end - start
    while left and (block := handle.read(min(left, READ_SIZE))):
        found += block.count(b"\n")
        left -= len(block)
    return found
