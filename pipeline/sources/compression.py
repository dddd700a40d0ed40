"""Blocks of a file's bytes, decompressed: everything before a break arrives, then the break is raised."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

BLOCK_BYTES = 1 << 20
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


class BrokenCompressionError(Exception):
    """The compressed stream ends too early or is damaged."""


def blocks(path: Path) -> Iterator[bytes]:
    """The content of a file in blocks of at most BLOCK_BYTES, decompressed by its suffix.

    Raises BrokenCompressionError after the last byte that could be decompressed, OSError when the file cannot be read.
    """
    try:
        suffix = path.suffix.lower()
        if suffix == ".zst":
            yield from _zstd(path)
            return
        with path.open("rb") as file, _opened(file, suffix) as stream:
            # read1, not read: read drops what it has when the stream breaks
            while block := stream.read1(BLOCK_BYTES):
                yield block
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise BrokenCompressionError(str(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        # the decompressors' OSErrors carry no errno
        raise BrokenCompressionError(str(error)) from error


def _opened(file: BinaryIO, suffix: str) -> gzip.GzipFile:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=file)
    if suffix == ".bz2":
        return cast(gzip.GzipFile, bz2.BZ2File(file))
    if suffix == ".xz":
        return cast(gzip.GzipFile, lzma.LZMAFile(file))
    return cast(gzip.GzipFile, file)


def _zstd(path: Path) -> Iterator[bytes]:
    """Arrow's reader loses what a failing read had decompressed, so the stream is opened again and that read repeated byte by byte."""
    delivered = 0
    try:
        with path.open("rb") as file, pa.CompressedInputStream(file, "zstd") as stream:
            while block := stream.read(BLOCK_BYTES):
                delivered += len(block)
                yield block
    except OSError:
        yield from _salvaged(path, delivered)


def _salvaged(path: Path, delivered: int) -> Iterator[bytes]:
    """What follows the first `delivered` bytes, then the error that ends the stream."""
    found = bytearray()
    try:
        with path.open("rb") as file, pa.CompressedInputStream(file, "zstd") as stream:
            while delivered:
                delivered -= len(stream.read(min(delivered, BLOCK_BYTES)))
            while byte := stream.read(1):
                found += byte
    except OSError:
        yield bytes(found)
        raise
    yield bytes(found)
