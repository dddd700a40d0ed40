"""CSV with a header row, read row by row so that a broken row costs that row only."""

import csv
import io
from collections.abc import Iterator

import pyarrow as pa

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.formats.streams import BlockStream
from pipeline.sources.rejects import Reason


def read_csv(content: Iterator[bytes], reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of a CSV file; `row` is the line where the row ends. Raises what `content` raises."""
    csv.field_size_limit(MAX_DOCUMENT_BYTES)  # the default refuses texts over 128 KB
    # invalid bytes become surrogates, so that only their row is rejected
    rows = csv.DictReader(_decoded_lines(content), strict=True)
    try:
        header = [name.encode(errors="backslashreplace").decode() for name in rows.fieldnames or []]
    except csv.Error as error:
        why = f"the header cannot be read: {error}"
        reader.batches.reject(reader.file, None, Reason.BROKEN_CSV, why, reader.bytes)
        return
    if missing := [name for name in reader.columns.text_columns if header and name not in header]:
        why = f"no column {missing[0]!r}; there are {', '.join(header)}"
        reader.batches.reject(reader.file, None, Reason.NO_TEXT, why, reader.bytes)
        return
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            reader.batches.reject(reader.file, rows.reader.line_num, Reason.BROKEN_CSV, str(error))
            continue
        if row is None:
            return
        yield from _read_row(rows.line_num, row, reader)
        if reader.batches.done:
            return


def _read_row(number: int, row: dict[str, str], reader: RowReader) -> Iterator[pa.RecordBatch]:
    if None in row or None in row.values():
        reader.batches.reject(
            reader.file, number, Reason.BROKEN_CSV, "the row has not as many fields as the header"
        )
    elif not _is_utf8("".join(row.values())):
        reader.batches.reject(
            reader.file, number, Reason.INVALID_UTF8, "the row holds bytes that are not UTF-8"
        )
    else:
        yield from reader.add(number, dict(row))


def _decoded_lines(content: Iterator[bytes]) -> Iterator[str]:
    raw = io.BufferedReader(BlockStream(content), 1 << 20)
    yield from io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
