"""JSON lines: one object per line; a broken line loses that line only."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import orjson
import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.formats.compression import BrokenCompressionError
from pipeline.sources.formats.first_bytes import NOT_UTF8, parses
from pipeline.sources.formats.rows import Row, RowReader
from pipeline.sources.source import Reason
from pipeline.store.errors import kind_of

LEAST_LONG = 1 << 63
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_A_NUMBER = re.compile(rb"NaN|Infinity")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


def read_jsonl(content: Iterator[bytes], reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of JSON lines. Blank lines are skipped, but numbered. Raises what `content` raises."""
    yield from read_lines(lines_of(content, parses), reader)


def read_lines(lines: Iterator[bytes | None], reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of lines, of which one that is None is too long."""
    for number, line in enumerate(lines, start=1):
        if line is None:
            reader.reject(number, Reason.TOO_LONG, f"the line is longer than {MAX_DOCUMENT_BYTES} bytes")
        elif (row := _row(line, number, reader)) is not None:
            yield from reader.add(number, row)
        if reader.batches.done:
            return


def lines_of(content: Iterable[bytes], is_whole: Callable[[bytes], bool] = bool) -> Iterator[bytes | None]:
    """Each line, and None for one longer than MAX_DOCUMENT_BYTES, which is not held in memory. What there is
    of the line within which `content` is damaged comes before the damage is raised, if it `is_whole`.
    """
    begun, size = list[bytes](), 0
    try:
        for block in content:
            for index, piece in enumerate(block.split(b"\n")):
                if index:
                    yield b"".join(begun) if size <= MAX_DOCUMENT_BYTES else None
                    begun, size = [], 0
                size += len(piece)
                if size <= MAX_DOCUMENT_BYTES:
                    begun.append(piece)
                else:
                    begun.clear()
    except BrokenCompressionError:
        if size <= MAX_DOCUMENT_BYTES and is_whole(b"".join(begun)):
            yield b"".join(begun)
        raise
    yield b"".join(begun) if size <= MAX_DOCUMENT_BYTES else None


def _row(line: bytes, number: int, reader: RowReader) -> Row | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if not line.strip():
            return None
        if line.startswith(BYTE_ORDER_MARK):
            return _row(line.removeprefix(BYTE_ORDER_MARK), number, reader)
        row = _without_nan(line) if _NOT_A_NUMBER.search(line) else None
        if row is None:
            reader.reject(number, *_why(line, error))
            return None
    if not isinstance(row, dict):
        remedy = ": write it as an object (jq -c '{text: .}')" if isinstance(row, str) else ""
        reader.reject(number, Reason.NOT_AN_OBJECT, f"the line holds {kind_of(row)}, not an object{remedy}")
        return None
    if any(isinstance(value, float) and abs(value) >= LEAST_LONG for value in row.values()):
        with suppress(RecursionError):
            row = json.loads(line, parse_int=_integer)
    return row


def _without_nan(line: bytes) -> object:
    """What a line holds with null for NaN and infinities, which Python and pandas write though JSON has none;
    None if that is not all that is wrong with it.
    """
    try:
        return json.loads(line, parse_constant=lambda _: None, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(digits: str) -> int | str:
    """Text for an integer of more than 64 bits, which orjson makes a float."""
    short = len(digits) < 21 and -LEAST_LONG <= int(digits) < 2 * LEAST_LONG
    return int(digits) if short else digits


def _why(line: bytes, error: orjson.JSONDecodeError) -> tuple[Reason, str]:
    try:
        text = line.decode()
    except UnicodeDecodeError as undecodable:
        return Reason.INVALID_UTF8, f"byte {undecodable.start} of the line: {undecodable.reason}; {NOT_UTF8}"
    if _SURROGATE_ESCAPE.search(text) and parses(text):
        return Reason.LONE_SURROGATE, str(error)
    return Reason.INVALID_JSON, str(error)
