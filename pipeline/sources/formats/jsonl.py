"""JSON lines: one object per line; a broken line loses that line only."""

import json
import re
from collections.abc import Generator, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import orjson
import pyarrow as pa

from pipeline.sources.documents import BATCH_BYTES, MAX_DOCUMENT_BYTES
from pipeline.sources.formats.rows import Row, RowReader
from pipeline.sources.rejects import Reason

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
WINDOW_BYTES = BATCH_BYTES + BATCH_BYTES // 8  # without keys and metadata, about one batch of text
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


class _Line(NamedTuple):
    """A line that is not blank. `row` is None unless the line is an object with a text that is not blank."""

    number: int
    content: memoryview
    row: Row | None


def read_jsonl(content: Iterator[bytes], reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of JSON lines. Blank lines are skipped, but numbered. Raises what `content` raises."""
    number = 1
    for lines in windows(content):
        if lines is None:
            reader.batches.reject(
                reader.file, number, Reason.TOO_LONG, f"the line is longer than {MAX_DOCUMENT_BYTES} bytes"
            )
            number += 1
        elif reader.takes_batches and len(lines) < 2 * WINDOW_BYTES:
            number += yield from _together(number, lines, reader)
        else:
            number += yield from _one_by_one(number, lines, reader)
        if reader.batches.done:
            return


def windows(content: Iterable[bytes]) -> Iterator[bytes | None]:
    """Complete lines, about WINDOW_BYTES at a time, and None for a line longer than MAX_DOCUMENT_BYTES, which
    is not held in memory.

    When `content` raises, the complete lines before that come first.
    """
    # complete lines, and the line that has begun, of `size` bytes
    complete, begun, filled, size = list[bytes](), list[bytes](), 0, 0
    try:
        for block in content:
            first, last = block.find(b"\n") + 1, block.rfind(b"\n") + 1
            size += first - 1 if first else len(block)
            begun = [*begun, block[:first] if first else block] if size <= MAX_DOCUMENT_BYTES else []
            filled += len(block)
            if first and size > MAX_DOCUMENT_BYTES:
                yield b"".join(complete)
                yield None
                complete = []
            if first:
                complete += [*begun, block[first:last]]
                begun, size = [block[last:]], len(block) - last
            if first and filled >= WINDOW_BYTES:
                yield b"".join(complete)
                complete, filled = [], 0
    except Exception:
        yield b"".join(complete)
        raise
    yield b"".join([*complete, *begun])
    if size > MAX_DOCUMENT_BYTES:
        yield None


def _together(first: int, lines: bytes, reader: RowReader) -> Generator[pa.RecordBatch, None, int]:
    """The documents of complete lines. Returns the number of newlines.

    Consecutive lines that each hold a text become one batch. Any other line is read alone, and so is each
    line of a run in which a document would be rejected.
    """
    column = reader.columns.text_column
    objects, newlines = _objects(first, lines, column)
    for good, group in groupby(objects, key=lambda line: line.row is not None):
        run = list(group)
        if good:
            rows = [line.row for line in run if line.row is not None]
            texts = pa.array([row.pop(column) for row in rows], pa.large_string())
            if reader.add_batch([line.number for line in run], texts, rows):
                yield from reader.batches.full()
                continue
        for line in run:
            if not reader.batches.done:
                yield from _alone(line.number, bytes(line.content), reader)
    return newlines


def _objects(first: int, lines: bytes, column: str) -> tuple[list[_Line], int]:
    """The lines that are not blank, parsed where they are, and the number of newlines."""
    view, start, number, found = memoryview(lines), 0, first, []
    while start < len(lines):
        end = lines.find(b"\n", start) % (len(lines) + 1)  # -1, at the last line, becomes its end
        content = view[start:end]
        row = _object_with_text(content, column)
        if row is not None or bytes(content).strip():
            found.append(_Line(number, content, row))
        start, number = end + 1, number + 1
    return found, number - first - (start > len(lines))


def _one_by_one(first: int, lines: bytes, reader: RowReader) -> Generator[pa.RecordBatch, None, int]:
    """As `_together`, for long lines and for texts made of several columns."""
    for number, line in enumerate(lines.split(b"\n"), start=first):
        yield from _alone(number, line, reader)
        if reader.batches.done:
            break
    return number - first


def _object_with_text(line: memoryview, column: str) -> Row | None:
    """The JSON object of a line, or None unless its `column` holds a string of more than white space."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(row, dict):
        return None
    text = row.get(column)
    return row if isinstance(text, str) and text and not text.isspace() else None


def _alone(number: int, line: bytes, reader: RowReader) -> Iterator[pa.RecordBatch]:
    row = _row(line, number, reader)
    if row is not None:
        yield from reader.add(number, row)


def _row(line: bytes, number: int, reader: RowReader) -> Row | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if not line.strip():
            return None
        if line.startswith(BYTE_ORDER_MARK):
            return _row(line.removeprefix(BYTE_ORDER_MARK), number, reader)
        reader.batches.reject(reader.file, number, *_why(line, error))
        return None
    if not isinstance(row, dict):
        reader.batches.reject(
            reader.file,
            number,
            Reason.NOT_AN_OBJECT,
            f"the line holds a JSON {type(row).__name__}, not an object",
        )
        return None
    return row


def _why(line: bytes, error: orjson.JSONDecodeError) -> tuple[Reason, str]:
    try:
        text = line.decode()
    except UnicodeDecodeError as undecodable:
        return Reason.INVALID_UTF8, f"byte {undecodable.start} of the line: {undecodable.reason}"
    if _SURROGATE_ESCAPE.search(text) and _python_parses(text):
        return Reason.LONE_SURROGATE, str(error)
    return Reason.INVALID_JSON, str(error)


def _python_parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def not_an_array(content: Iterator[bytes], reader: RowReader) -> Iterator[bytes]:
    """The same stream, or nothing if the file is one JSON array. The array is rejected as a file, because
    the errors of its lines would not explain it.
    """
    start = next(content, b"")
    if start.lstrip().startswith(b"["):
        reader.batches.reject(
            reader.file,
            None,
            Reason.JSON_ARRAY,
            "the file is one JSON array; write one object per line (jq -c '.[]')",
            reader.bytes,
        )
        return
    yield start
    yield from content
