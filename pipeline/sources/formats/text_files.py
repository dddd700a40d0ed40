"""Plain text and Markdown: one document per file, or several pieces of a long file."""

import codecs
from collections.abc import Iterator

import pyarrow as pa

from pipeline.sources.documents import Batches, SourceDocument, location
from pipeline.sources.source import Reason

PIECE_BYTES = 64 << 10


def read_text(content: Iterator[bytes], file: str, batches: Batches) -> Iterator[pa.RecordBatch]:
    r"""The documents of a UTF-8 text file: the entire file, or pieces of at most PIECE_BYTES, cut at blank
    lines if possible.

    As a single document, a corpus of one long file could not be split into training and validation. Ids are
    byte offsets. All line ends become `\n`. Raises BrokenCompressionError and OSError.
    """
    offset = 0
    for piece in pieces(content):
        text = piece.removeprefix(codecs.BOM_UTF8) if offset == 0 else piece
        row = offset + 1
        try:
            decoded = universal_newlines(text.decode())
            batches.add(file, SourceDocument(location(file, offset), decoded, row, file))
        except UnicodeDecodeError as error:
            place = offset + len(piece) - len(text) + error.start
            batches.reject(file, row, Reason.INVALID_UTF8, f"byte {place} of the file: {error.reason}")
        yield from batches.full()
        if batches.done:
            return
        offset += len(piece)


def universal_newlines(text: str) -> str:
    r"""The text with `\r\n` and lone `\r` as `\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def pieces(content: Iterator[bytes]) -> Iterator[bytes]:
    """The stream, cut into pieces of at most PIECE_BYTES."""
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
    r"""Where to end a piece: after the last blank line in the second half of the window, else after a line,
    else between characters.

    Never between `\r` and `\n`, nor after a `\r` that ends the window, because a `\n` may follow.
    """
    if window.endswith(b"\r"):
        window = window[:-1]
    half = len(window) // 2
    for separator in (b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b"\r"):
        found = window.rfind(separator, half)
        if found >= 0:
            end = found + len(separator)
            return end + window[end - 1 :].startswith(b"\r\n")
    for back in range(1, 4):
        if window[-back] >= 0xC0:
            return len(window) - back
        if window[-back] < 0x80:
            break
    return len(window)
