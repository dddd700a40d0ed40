"""The bytes of a file in blocks: decompressed, converted to UTF-8, read as a file. Damage is raised after all
bytes that are verified were yielded.
"""

import codecs
import io
from collections.abc import Iterator
from itertools import chain, islice
from typing import cast

from pipeline.sources.formats.compression import CODECS, BrokenCompressionError, decompressed
from pipeline.sources.source_file import SourceFile

_NEVER_UTF8 = "\udcff"  # encoded as the byte FF, which later checks reject as invalid UTF-8
# with blocks of 1 MB, each allocated anew by the system, reading is a quarter slower
BLOCK_BYTES = 1 << 16


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


def reads_text(codec: codecs.CodecInfo) -> bool:
    """Whether `as_utf8` can use a codec: not base64, nor the encodings of host names."""
    try:
        trial = [codec.encode("a")[0], b"\xff"]
        return codec._is_text_encoding and bool(list(as_utf8(iter(trial), codec.name)))
    except (UnicodeError, TypeError, AssertionError):
        return False


def ahead(content: Iterator[bytes], count: int) -> tuple[list[bytes], Iterator[bytes]]:
    """The first `count` blocks, or as many as there are, and the whole content. Damage in these blocks is
    raised after those before it.
    """
    found: list[bytes] = []
    try:
        for block in islice(content, count):
            found.append(block)
    except BrokenCompressionError as error:
        return found, chain(found, _raised(error))
    return found, chain(found, content)


def _raised(error: BrokenCompressionError) -> Iterator[bytes]:
    raise error
    yield


class Counted(Iterator[bytes]):
    """Passes blocks on, counts them, and tells which share is left after a reader has given up."""

    def __init__(self, content: Iterator[bytes]):
        self._content = content
        self.bytes = 0

    def __next__(self) -> bytes:
        block = next(self._content)
        self.bytes += len(block)
        return block

    def share_left(self, unused: float = 0.0) -> float:
        """Reads to the end. `unused`: the share of what was read that counts as left, too."""
        rest = sum(map(len, self._content))
        return (unused * self.bytes + rest) / max(self.bytes + rest, 1)


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


def blocks(file: SourceFile, compression: str) -> Iterator[bytes]:
    """The content of a file in blocks of about BLOCK_BYTES, decompressed if `compression` is one of CODECS.

    Raises BrokenCompressionError after the last byte that is verified, OSError when the file cannot be read.
    """
    if compression:
        yield from _gathered(decompressed(file, CODECS[compression]))
        return
    with file.open() as handle:
        # read1, because read loses what comes before an error
        while block := cast(io.BufferedReader, handle).read1(BLOCK_BYTES):
            yield block


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    found = bytearray()
    try:
        for piece in pieces:
            found += piece
            while len(found) >= BLOCK_BYTES:  # a piece of what packs well has megabytes
                yield bytes(found[:BLOCK_BYTES])
                del found[:BLOCK_BYTES]
    except BrokenCompressionError:
        yield bytes(found)
        raise
    yield bytes(found)
