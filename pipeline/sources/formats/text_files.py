"""Plain text and Markdown: one document a file, or several where the recipe says how to divide a file."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, SourceDocument, location
from pipeline.sources.formats.compression import BrokenCompressionError
from pipeline.sources.formats.first_bytes import NOT_UTF8
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.source import Reason, RefusedError

TOO_LONG = (
    f"more than {MAX_DOCUMENT_BYTES} bytes: divide the file into documents with `document_separator`, or cut "
    "it with `piece_bytes`"
)
LICENSE_BYTES = 32 << 10  # at most, of Project Gutenberg
_LICENSE_BEGINS = re.compile(rb"^\*\*\* ?END OF TH(?:E|IS) PROJECT GUTENBERG EBOOK", re.M)


def read_text(
    content: Iterator[bytes], reader: RowReader, piece_bytes: int | None, separator: str | None = None
) -> Iterator[pa.RecordBatch]:
    r"""The documents of a UTF-8 text file: the entire file, or what stands between two `separator`s, each cut
    into pieces of at most `piece_bytes`, at blank lines if possible, unless it is a conversation. What is too
    long for a document is set aside.

    Ids are byte offsets. All line ends become `\n`. Those around a document that `separator` ends are left
    out, and so is a document without text. Raises BrokenCompressionError and OSError.
    """
    talks = reader.columns.format == "chat"
    parts: Iterable[tuple[int, Iterator[bytes]]] = (
        ((0, content),) if separator is None else separated(content, separator)
    )
    for offset, part in parts:
        for piece in (
            whole(part, reader, MAX_DOCUMENT_BYTES, TOO_LONG, row=offset + 1 if separator else None)
            if piece_bytes is None or talks
            else pieces(part, piece_bytes)
        ):
            text = piece.removeprefix(codecs.BOM_UTF8) if offset == 0 else piece
            row = offset + 1
            try:
                decoded = universal_newlines(text.decode())
                if separator is not None and not (decoded := decoded.strip("\n")).strip():
                    pass
                elif talks:
                    yield from reader.add(row, {"text": decoded})
                else:
                    document = SourceDocument(location(reader.file, offset), decoded, row, reader.file)
                    reader.batches.add(reader.file, document)
            except UnicodeDecodeError as error:
                place = offset + len(piece) - len(text) + error.start
                why = f"byte {place} of the file: {error.reason}; {NOT_UTF8}"
                reader.reject(row, Reason.INVALID_UTF8, why)
            yield from reader.batches.full()
            if reader.batches.done:
                return
            offset += len(piece)


def read_whole(
    content: Iterator[bytes],
    reader: RowReader,
    piece_bytes: int | None,
    text_of: Callable[[bytes], str],
    *,
    most: int,
    what: str = "bytes",
    row: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The text that `text_of` finds in a file of at most `most` bytes, as `read_text` gives it. Sets aside a
    file without one, and a file, or its `row`, for which `text_of` raises RefusedError. Raises what `content`
    raises.
    """
    for file in whole(content, reader, most, f"more than {most} {what}"):
        try:
            text = text_of(file)
        except RefusedError as error:
            reader.reject(row, error.reason, str(error), reader.bytes)
            continue
        if text.strip():
            yield from read_text(iter([text.encode("utf-8", "surrogateescape")]), reader, piece_bytes)
        else:
            reader.reject(1, Reason.EMPTY_TEXT, "the file has no text")


def separated(content: Iterator[bytes], separator: str) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The parts of a stream between separators: the byte at which a part begins, and its content. A part must
    be read before the next one is taken. An end of line in the separator stands for any.
    """
    for begin, pieces_of_part in groupby(_pieces_of_parts(content, separator), key=itemgetter(0)):
        yield begin, map(itemgetter(1), pieces_of_part)


def _pieces_of_parts(content: Iterator[bytes], separator: str) -> Iterator[tuple[int, bytes]]:
    """(byte at which the part begins, a piece of it)"""
    encoded = separator.encode()
    pattern = re.compile(rb"(?:\r\n|\r|\n)".join(map(re.escape, encoded.split(b"\n"))))
    longest = len(encoded) + encoded.count(b"\n")
    begin, offset, held = 0, 0, b""
    try:
        for block in content:
            held += block
            start = 0
            for found in pattern.finditer(held):
                yield begin, held[start : found.start()]
                start = found.end()
                begin = offset + start
            end = max(start, len(held) - longest + 1)  # from where a separator may have begun
            yield begin, held[start:end]
            offset, held = offset + end, held[end:]
    except BrokenCompressionError:
        yield begin, held
        raise
    yield begin, held


def whole(
    content: Iterator[bytes], reader: RowReader, most: int, too_long: str, row: int | None = None
) -> Iterator[bytes]:
    """The stream as one piece. Of a damaged file, what comes before the damage, up to a whole character. A
    stream of more than `most` bytes, which is the file or its `row`, is set aside with the reason `too_long`.
    """
    held, damage = bytearray(), None
    try:
        for block in content:
            held += block
            if len(held) > most:
                reader.reject(row, Reason.TOO_LONG, too_long, reader.bytes if row is None else 0)
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
    """The stream, cut into pieces of at most `size` bytes. A license of Project Gutenberg stays with the mark
    before it, without which it could not be told from a book.
    """
    held = bytearray()  # which, unlike bytes, is not copied for each block that is added
    for block in content:
        held += block
        start = 0
        while len(held) - start > size:
            most = _most(bytes(held[start : start + size]), size)
            if len(held) - start <= most:
                break
            window = bytes(held[start : start + most])
            end = _cut(window)
            yield window[:end]
            start += end
        del held[:start]
    if held:
        yield bytes(held)


def _most(window: bytes, size: int) -> int:
    """How long a piece may be that begins as `window` does, which has `size` bytes."""
    found = _LICENSE_BEGINS.search(window)
    return max(size, found.start() + LICENSE_BYTES) if found else size


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
