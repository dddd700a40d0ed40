"""The decompressed bytes of a file, in blocks. Damage is raised after all bytes before it were yielded."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, cast

import pyarrow as pa

from pipeline.sources.source_file import SourceFile

# with blocks of 1 MB, each allocated anew by the system, reading is a quarter slower
BLOCK_BYTES = 1 << 16
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
WIDE_WINDOW = "its window is above 128 MB; compress it again, by `zstd --long=27` or without `--long`"
TOO_WIDE = "too much memory for decoding"  # what Arrow says of files of `zstd --long=28` and above


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
    """The content of a file in blocks of at most BLOCK_BYTES, decompressed if `compression` is one of
    COMPRESSED.

    Raises BrokenCompressionError after the last byte that could be decompressed, OSError when the file cannot
    be read.
    """
    with file.open() as handle:
        try:
            if compression == ".zst":
                yield from _zstd(file, handle)
                return
            with _opened(handle, compression) as stream:
                # read1, because read loses the bytes before the damage
                while block := stream.read1(BLOCK_BYTES):
                    yield block
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise BrokenCompressionError(str(error), handle.tell()) from error
        except OSError as error:
            if error.errno is not None:
                raise
            if TOO_WIDE in str(error):
                raise BrokenCompressionError(WIDE_WINDOW, 0) from error
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


def _zstd(file: SourceFile, handle: BinaryIO) -> Iterator[bytes]:
    """A failing read of Arrow loses the bytes that it had decompressed, so the stream is opened again and
    that read repeated byte by byte.
    """
    delivered = 0
    try:
        stream = pa.CompressedInputStream(handle, "zstd")
        while block := stream.read(BLOCK_BYTES):
            delivered += len(block)
            yield block
    except OSError:
        yield from _salvaged(file, delivered)


def _salvaged(file: SourceFile, delivered: int) -> Iterator[bytes]:
    """What follows the first `delivered` bytes, then the error that ends the stream."""
    found = bytearray()
    try:
        with file.open() as handle, pa.CompressedInputStream(handle, "zstd") as stream:
            while delivered:
                delivered -= len(stream.read(min(delivered, BLOCK_BYTES)))
            while byte := stream.read(1):
                found += byte
    except OSError:
        yield bytes(found)
        raise
    yield bytes(found)
