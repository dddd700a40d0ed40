"""Plain text and Markdown: one document a file, and a long file in pieces."""

import codecs
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pipeline.sources.compression import blocks
from pipeline.sources.documents import Batches, Document, Reason, location

PIECE_BYTES = 64 << 10


def read_text(path: Path, file: str, batches: Batches) -> Iterator[pa.RecordBatch]:
    """The documents of a UTF-8 text file: the whole file, or pieces of at most PIECE_BYTES, cut at blank lines where there are any.

    One document a file would give a corpus of one long file nothing to hold out. Ids are byte offsets. Raises BrokenCompressionError and OSError.
    """
    offset = 0
    for piece in pieces(blocks(path)):
        text = piece.removeprefix(codecs.BOM_UTF8) if offset == 0 else piece
        row = offset + 1
        try:
            batches.add(file, Document(location(file, offset), text.decode(), row, file))
        except UnicodeDecodeError as error:
            batches.reject(file, row, Reason.INVALID_UTF8, f"byte {offset + len(piece) - len(text) + error.start} of the file: {error.reason}")
        yield from batches.full()
        if batches.done:
            return
        offset += len(piece)


def pieces(content: Iterator[bytes]) -> Iterator[bytes]:
    """The stream cut into pieces of at most PIECE_BYTES, which joined give the stream."""
    held = b""
    for block in content:
        held += block
        start = 0
        while len(held) - start > PIECE_BYTES:
            end = start + _cut(held[start : start + PIECE_BYTES])
            yield held[start:end]
            start = end
        held = held[start:]
    if held:
        yield held


def _cut(window: bytes) -> int:
    """Where to end a piece: after the last blank line in the second half of the window, else after a line, else between characters."""
    half = len(window) // 2
    for separator in (b"\n\n", b"\r\n\r\n", b"\n"):
        found = window.rfind(separator, half)
        if found >= 0:
            return found + len(separator)
    for back in range(1, 4):
        if window[-back] >= 0xC0:
            return len(window) - back
        if window[-back] < 0x80:
            break
    return len(window)
