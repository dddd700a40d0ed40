"""JSON lines: one object a line; a broken line costs that line only."""

import json
import re
from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, Reason
from pipeline.sources.rows import RowReader

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


def read_jsonl(content: Iterator[bytes], reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of JSON lines. Blank lines are no rows, but count as lines. Raises what `content` raises."""
    for number, line in lines(content):
        if line is None:
            reader.batches.reject(reader.file, number, Reason.TOO_LONG, f"the line is longer than {MAX_DOCUMENT_BYTES} bytes")
            continue
        row = _row(line, number, reader)
        if row is not None:
            yield from reader.add(number, row)
            if reader.batches.done:
                return


def lines(content: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a stream with their number from 1, without their end; None for one longer than MAX_DOCUMENT_BYTES, which is not held."""
    number, held, pending = 1, 0, list[bytes]()
    for block in content:
        first, *rest = block.split(b"\n")
        held += len(first)
        pending = [*pending, first] if held <= MAX_DOCUMENT_BYTES else []
        if not rest:
            continue
        yield number, b"".join(pending) if held <= MAX_DOCUMENT_BYTES else None
        for line in rest[:-1]:
            number += 1
            yield number, line
        number += 1
        pending, held = [rest[-1]], len(rest[-1])
    if held:
        yield number, b"".join(pending) if held <= MAX_DOCUMENT_BYTES else None


def _row(line: bytes, number: int, reader: RowReader) -> dict[str, object] | None:
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
        reader.batches.reject(reader.file, number, Reason.NOT_AN_OBJECT, f"the line holds a JSON {type(row).__name__}, not an object")
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
        reader.batches.reject(reader.file, None, Reason.JSON_ARRAY, "the file is one JSON array; write one object per line (jq -c '.[]')")
        return
    yield start
    yield from content
