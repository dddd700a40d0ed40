"""JSON lines: one object a line; a broken line costs that line only."""

import json
import re
from collections.abc import Generator, Iterable, Iterator
from itertools import groupby

import orjson
import pyarrow as pa

from pipeline.sources.documents import BATCH_BYTES, MAX_DOCUMENT_BYTES, Reason
from pipeline.sources.formats.jsonl_kernel import cut_texts
from pipeline.sources.formats.rows import Row, RowReader

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
WINDOW_BYTES = BATCH_BYTES + BATCH_BYTES // 8  # what is not text leaves about one batch
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


def read_jsonl(content: Iterator[bytes], reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of JSON lines. Blank lines are no rows, but count as lines. Raises what `content`
    raises.
    """
    number = 1
    for lines in windows(content):
        if lines is None:
            reader.batches.reject(
                reader.file, number, Reason.TOO_LONG, f"the line is longer than {MAX_DOCUMENT_BYTES} bytes"
            )
            number += 1
        elif reader.takes_whole and len(lines) < 2 * WINDOW_BYTES:
            number += yield from _together(number, lines, reader)
        else:
            number += yield from _one_by_one(number, lines, reader)
        if reader.batches.done:
            return


def windows(content: Iterable[bytes]) -> Iterator[bytes | None]:
    """Whole lines, about WINDOW_BYTES at a time, and None for one longer than MAX_DOCUMENT_BYTES, which
    is not held.

    When `content` raises, the whole lines before come first.
    """
    # whole lines, and the line that has begun, of `size` bytes
    whole, begun, filled, size = list[bytes](), list[bytes](), 0, 0
    try:
        for block in content:
            first, last = block.find(b"\n") + 1, block.rfind(b"\n") + 1
            size += first - 1 if first else len(block)
            begun = [*begun, block[:first] if first else block] if size <= MAX_DOCUMENT_BYTES else []
            filled += len(block)
            if first and size > MAX_DOCUMENT_BYTES:
                yield b"".join(whole)
                yield None
                whole = []
            if first:
                whole += [*begun, block[first:last]]
                begun, size = [block[last:]], len(block) - last
            if first and filled >= WINDOW_BYTES:
                yield b"".join(whole)
                whole, filled = [], 0
    except Exception:
        yield b"".join(whole)
        raise
    yield b"".join([*whole, *begun])
    if size > MAX_DOCUMENT_BYTES:
        yield None


def _together(first: int, lines: bytes, reader: RowReader) -> Generator[pa.RecordBatch, None, int]:
    """The documents of whole lines, and how many lines that is. Texts are cut out and taken together; what is
    not good is looked at line by line.
    """
    column, taken = reader.columns.text_column, 0
    cut = cut_texts(lines, column)
    spans: list[tuple[int, int, int, int, int]] = cut.spans.tolist()
    rows = [
        None if text < 0 else _object(lines[start:text] + lines[text_end:end], column)
        for _, start, text, text_end, end in spans
    ]
    for good, group in groupby(zip(spans, rows, strict=True), key=lambda one: one[1] is not None):
        if reader.batches.done:
            break
        run = list(group)
        texts = cut.texts.slice(taken, sum(span[2] >= 0 for span, _ in run))
        taken += len(texts)
        if good and reader.add_whole(
            [first + span[0] for span, _ in run], texts, [row for _, row in run if row is not None]
        ):
            yield from reader.batches.full()
            continue
        for (number, start, *_, end), _ in run:
            yield from _alone(first + number, lines[start:end], reader)
            if reader.batches.done:
                break
    return cut.newlines


def _one_by_one(first: int, lines: bytes, reader: RowReader) -> Generator[pa.RecordBatch, None, int]:
    """As `_together`, for lines that are too long, or whose text is made of several columns."""
    for number, line in enumerate(lines.split(b"\n"), start=first):
        yield from _alone(number, line, reader)
        if reader.batches.done:
            break
    return number - first


def _object(rest: bytes, column: str) -> Row | None:
    """The columns beside the text of a line that it was cut out of, if that is JSON."""
    try:
        row: Row = orjson.loads(rest)
    except orjson.JSONDecodeError:
        return None
    del row[column]
    return row


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
    """The same stream, or nothing when the file is one JSON array, which no line of it would explain."""
    start = next(content, b"")
    if start.lstrip().startswith(b"["):
        reader.batches.reject(
            reader.file,
            None,
            Reason.JSON_ARRAY,
            "the file is one JSON array; write one object per line (jq -c '.[]')",
        )
        return
    yield start
    yield from content
