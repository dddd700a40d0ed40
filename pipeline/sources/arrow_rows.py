"""Arrow batches as rows: which columns are read, and a check of every string, which Arrow itself does not make."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as pt

from pipeline.sources.documents import Reason
from pipeline.sources.rows import Row, RowReader


def readable_columns(schema: pa.Schema, text_column: str) -> list[str]:
    """The text column and those that metadata can hold: nested and binary columns are left out."""
    return [field.name for field in schema if field.name == text_column or _is_scalar(field.type)]


def no_text(schema: pa.Schema, text_column: str) -> tuple[Reason, str] | None:
    """Why a table has no text to read, if so."""
    if text_column not in schema.names:
        return Reason.NO_TEXT, f"no column {text_column!r}; there are {', '.join(schema.names)}"
    if not _is_text(schema.field(text_column).type):
        return Reason.TEXT_NOT_A_STRING, f"column {text_column!r} is of type {schema.field(text_column).type}"
    return None


def add_rows(first: int, batch: pa.RecordBatch, reader: RowReader) -> Iterator[pa.RecordBatch]:
    """Gives the rows of a batch of readable columns, the first of which has number `first`, to `reader`."""
    for number, row in enumerate(_rows(batch, reader.columns.text_column), start=first):
        try:
            decoded = {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
        except UnicodeDecodeError as error:
            reader.batches.reject(reader.file, number, Reason.INVALID_UTF8, f"byte {error.start} of a value: {error.reason}")
            continue
        yield from reader.add(number, decoded)
        if reader.batches.done:
            return


def _rows(batch: pa.RecordBatch, text_column: str) -> list[Row]:
    """Rows with strings as bytes, since what a file calls a string may not be UTF-8."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        plain = column.dictionary_decode() if pt.is_dictionary(column.type) else column
        columns.append(plain.cast(pa.large_binary()) if name == text_column or _is_string(plain.type) else plain)
    rows: list[Row] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return rows


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Old writers leave strings unmarked, so bytes count as text if they are UTF-8."""
    value = _plain(kind)
    return bool(_is_string(value) or pt.is_binary(value) or pt.is_large_binary(value) or pt.is_binary_view(value))


def _is_scalar(kind: pa.DataType) -> bool:
    value = _plain(kind)
    return bool(_is_string(value) or pt.is_primitive(value) or pt.is_decimal(value))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind
