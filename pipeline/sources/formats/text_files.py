"""Plain text and Markdown: one document a file, or pieces of a file where the recipe asks for them."""

import codecs
from collections.abc import Iterator

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, SourceDocument, location
from pipeline.sources.formats.compression import BrokenCompressionError
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.source import Reason

TOO_LONG = f"more than {MAX_DOCUMENT_BYTES} bytes: cut the file into documents with `piece_bytes`"


def read_text(
    content: Iterator[bytes], reader: RowReader, piece_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    r"""The documents of a UTF-8 text file: the entire file, or pieces of at most `piece_bytes`, cut at blank
    lines if possible. A file that is too long for one document is set aside.

    Ids are byte offsets. All line ends become `\n`. Raises BrokenCompressionError and OSError.
    """
    offset = 0
    for piece in (
        whole(content, reader, MAX_DOCUMENT_BYTES, TOO_LONG)
        if piece_bytes is None
        else pieces(content, piece_bytes)
    ):
        text = piece.removeprefix(codecs.BOM_UTF8) if offset == 0 else piece
        row = offset + 1
        try:
            decoded = universal_newlines(text.decode())
            document = SourceDocument(location(reader.file, offset), decoded, row, reader.file)
            reader.batches.add(reader.file, document)
        except UnicodeDecodeError as error:
            place = offset + len(piece) - len(text) + error.start
            reader.reject(row, Reason.INVALID_UTF8, f"byte {place} of the file: {error.reason}")
        yield from reader.batches.full()
        if reader.batches.done:
            return
        offset += len(piece)


def whole(content: Iterator[bytes], reader: RowReader, most: int, too_long: str) -> Iterator[bytes]:
    """The stream as one piece. Of a damaged file, what comes before the damage, up to a whole character. A
    file of more than `most` bytes is set aside, with the reason `too_long`.
    """
    held, damage = bytearray(), None
    try:
        for block in content:
            held += block
            if len(held) > most:
                reader.reject(None, Reason.TOO_LONG, too_long, reader.bytes)
                return
    except BrokenCompressionError as error:
        damage = error
        del held[len(held) - _begun(bytes(held[-4:])) :]
    if held:
        yield bytes(held)
    if damage:
        raise damage


def _begun(end: bytes) -> int:
    """How many bytes at the end of a text are the beginning of a character."""
    for back in range(1, len(end) + 1):
        if end[-back] >= 0xC0:
            return back if back < (2 if end[-back] < 0xE0 else 3 if end[-back] < 0xF0 else 4) else 0
        if end[-back] < 0x80:
            break
    return 0


def universal_newlines(text: str) -> str:
    r"""The text with `\r\n` and lone `\r` as `\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def pieces(content: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The stream, cut into pieces of at most `size` bytes."""
    held = b""
    for block in content:
        held += block
        start = 0
        while len(held) - start > size:
            end = start + _cut(held[start : start + size])
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
