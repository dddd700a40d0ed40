"""Compressed files. Of a member, frame or block whose checksum fails, nothing is given out: what a damaged
one unpacks to is scrambled from somewhere on.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import zstandard

from pipeline.sources.source_file import SourceFile

HELD_BYTES = 16 << 20  # of a member's content; a larger member is decompressed once before, to verify it
LARGEST_WINDOW = 1 << 31  # of `zstd --long=31`: reading such a file takes 2 GB
DAMAGED = (OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)  # of decompressors


class BrokenCompressionError(Exception):
    """The compressed stream is damaged. `position`: the byte of the file from which nothing was given out."""

    def __init__(self, why: str, position: int):
        super().__init__(why)
        self.position = position


class TruncatedError(BrokenCompressionError):
    """The compressed stream ends too early. What comes before was given out, although nothing verifies it."""


@dataclass(frozen=True)
class Codec:
    """`read_bytes` of a file are decompressed at a time, as these may become 16 to 100 MB. `by_block`: each
    block is verified by itself.
    """

    decompressor: Callable[[], Any]
    read_bytes: int
    by_block: bool = False


def _zstandard() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj()


CODECS = {
    ".gz": Codec(partial(zlib.decompressobj, wbits=16 + zlib.MAX_WBITS), 1 << 14),
    ".bz2": Codec(bz2.BZ2Decompressor, 1 << 6, by_block=True),
    ".xz": Codec(lzma.LZMADecompressor, 1 << 11),
    ".zst": Codec(_zstandard, 1 << 11),
}


def format_of(name: str) -> tuple[str, str]:
    """The suffixes for format and compression: ('.jsonl', '.gz'), ('.txt', '')."""
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    return (path.with_suffix("").suffix.lower(), suffix) if suffix in CODECS else (suffix, "")


def decompressed(file: SourceFile, codec: Codec) -> Iterator[bytes]:
    """The content of a file in pieces of any size. Raises BrokenCompressionError after the last piece that is
    verified, OSError when the file cannot be read.
    """
    with file.open() as handle:
        members = _Members(handle, codec)
        while members.more():
            yield from members.next() if codec.by_block else _verified(file, members)


def _verified(file: SourceFile, members: "_Members") -> Iterator[bytes]:
    """The next member. Memory: HELD_BYTES."""
    start, held, size = members.position, list[bytes](), 0
    truncated = None
    try:
        for piece in members.next():
            size += len(piece)
            if size <= HELD_BYTES:
                held.append(piece)
            else:
                held.clear()
    except TruncatedError as error:
        truncated = error
    if size <= HELD_BYTES:
        yield from held
    else:
        with file.open() as handle:
            handle.seek(start)
            yield from _Members(handle, members.codec, start).next()
    if truncated:
        raise truncated


class _Members:
    """A compressed file, member by member. `position`: the byte of the file that is decompressed next."""

    def __init__(self, handle: BinaryIO, codec: Codec, position: int = 0):
        self.codec = codec
        self.position = position
        self._handle = handle
        self._unused = b""

    def more(self) -> bool:
        """Whether another member follows. Zeros between members are padding."""
        while packed := self._unused or self._handle.read(self.codec.read_bytes):
            self._unused = packed.lstrip(b"\0")
            self.position += len(packed) - len(self._unused)
            if self._unused:
                return True
        return False

    def next(self) -> Iterator[bytes]:
        verified, decompressor = self.position, self.codec.decompressor()
        while not decompressor.eof:
            packed = self._unused or self._handle.read(self.codec.read_bytes)
            if not packed:
                raise TruncatedError("the file ends too early", self.position)
            try:
                content = part = decompressor.decompress(packed)
                while self.codec.by_block and part and not decompressor.eof:
                    # A part of the block at a time; the last call compares the checksum.
                    part = decompressor.decompress(b"")
                    content += part
            except DAMAGED as error:
                raise BrokenCompressionError(str(error), verified) from error
            self._unused = decompressor.unused_data
            self.position += len(packed) - len(self._unused)
            if content:
                verified = self.position if self.codec.by_block else verified
                yield content
