"""The bytes of a file in blocks: decompressed, converted to UTF-8, read as a file. Damage is raised after all
bytes before it were yielded.
"""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, cast

import zstandard

from pipeline.sources.source_file import SourceFile

_NEVER_UTF8 = "\udcff"  # encoded as the byte FF, which later checks reject as invalid UTF-8
# with blocks of 1 MB, each allocated anew by the system, reading is a quarter slower
BLOCK_BYTES = 1 << 16
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
LARGEST_WINDOW = 1 << 31  # of `zstd --long=31`: reading such a file takes 2 GB
ZSTD_INPUT_BYTES = (
    2048  # may become 64 MB of text in one call, and what is lost with a damaged byte is little
)


def _marked(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError):
        return _NEVER_UTF8, error.end
    raise error


codecs.register_error("groundwork-mark", _marked)


def as_utf8(content: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """The same text in UTF-8. What is invalid in `encoding` becomes a byte that is invalid in UTF-8."""
    if codecs.lookup(encoding).name == "utf-8":
        yield from content
        return
    decoder = codecs.getincrementaldecoder(encoding)("groundwork-mark")
    for block in content:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


class Counted(Iterator[bytes]):
    """The same blocks; once a reader has given up, the share that it has left."""

    def __init__(self, content: Iterator[bytes]):
        self._content = content
        self._read = 0

    def __next__(self) -> bytes:
        block = next(self._content)
        self._read += len(block)
        return block

    def share_left(self) -> float:
        """Reads to the end."""
        rest = sum(map(len, self._content))
        return rest / max(self._read + rest, 1)


class BlockStream(io.RawIOBase):
    """An iterator of blocks as a readable file."""

    def __init__(self, content: Iterator[bytes]):
        self._content = content
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._held:
            block = next(self._content, None)
            if block is None:
                return 0
            self._held = block
        size = min(len(buffer), len(self._held))
        buffer[:size] = self._held[:size]
        self._held = self._held[size:]
        return size


class BrokenCompressionError(Exception):
    """The compressed stream ends too early or is damaged. `position`: bytes of the file that were read."""

    def __init__(self, why: str, position: int):
        super().__init__(why)
        self.position = position


def format_of(name: str) -> tuple[str, str]:
    """The suffixes for format and compression: ('.jsonl', '.gz'), ('.txt', '')."""
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    return (path.with_suffix("").suffix.lower(), suffix) if suffix in COMPRESSED else (suffix, "")


def blocks(file: SourceFile, compression: str) -> Iterator[bytes]:
    """The content of a file in blocks of about BLOCK_BYTES, decompressed if `compression` is one of
    COMPRESSED.

    Raises BrokenCompressionError after the last byte that could be decompressed, OSError when the file cannot
    be read.
    """
    with file.open() as handle:
        try:
            if compression == ".zst":
                yield from _zstd(handle)
                return
            with _opened(handle, compression) as stream:
                # read1, because read loses the bytes before the damage
                while block := stream.read1(BLOCK_BYTES):
                    yield block
        except (EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
            raise BrokenCompressionError(str(error), handle.tell()) from error
        except OSError as error:
            if error.errno is not None:
                raise
            # the OSErrors of decompressors have no errno
            raise BrokenCompressionError(str(error), handle.tell()) from error


def _opened(file: BinaryIO, compression: str) -> gzip.GzipFile:
    if compression == ".gz":
        return gzip.GzipFile(fileobj=file)
    if compression == ".bz2":
        return cast(gzip.GzipFile, bz2.BZ2File(file))
    if compression == ".xz":
        return cast(gzip.GzipFile, lzma.LZMAFile(file))
    return cast(gzip.GzipFile, file)


def _zstd(handle: BinaryIO) -> Iterator[bytes]:
    """One frame after another."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    frame = decompressor.decompressobj(write_size=BLOCK_BYTES)
    found = bytearray()
    try:
        while packed := handle.read(ZSTD_INPUT_BYTES):
            while packed:
                if frame.eof:
                    frame = decompressor.decompressobj(write_size=BLOCK_BYTES)
                found += frame.decompress(packed)
                packed = frame.unused_data if frame.eof else b""
            if len(found) >= BLOCK_BYTES:
                yield bytes(found)
                found.clear()
    except zstandard.ZstdError:
        yield bytes(found)
        raise
    yield bytes(found)
    if not frame.eof:
        raise EOFError("the file ends in the middle of a frame")
