"""Arrow batches as rows. Every string is checked to be UTF-8, which Arrow itself does not do."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as pt

from pipeline.sources.formats.rows import Columns, Row, RowReader
from pipeline.sources.rejects import Reason

# what is out of the range of Python's dates and times, and an unknown time zone
TIME_ERRORS = (ArithmeticError, LookupError, ValueError)


def readable_columns(schema: pa.Schema, columns: Columns) -> list[str]:
    """The columns of the text and those that fit into metadata; nested and binary columns are left out."""
    text = columns.text_columns
    return [
        field.name
        for field in schema
        if field.name in text or (columns.wants(field.name) and _is_scalar(field.type))
    ]


def no_text(schema: pa.Schema, columns: Columns) -> tuple[Reason, str] | None:
    """Why a table has no text to read; None if it has one."""
    for name in columns.text_columns:
        if name not in schema.names:
            return Reason.NO_TEXT, f"no column {name!r}; there are {', '.join(schema.names)}"
        if (found := schema.names.count(name)) > 1:
            return Reason.NO_TEXT, f"{found} columns have the name {name!r}: rename all but one"
        kind = schema.field(name).type
        if not (_is_text(kind) or (columns.text_template is not None and _is_number(kind))):
            return Reason.TEXT_NOT_A_STRING, f"column {name!r} is of type {kind}"
    return None


def add_rows(first: int, batch: pa.RecordBatch, reader: RowReader) -> Iterator[pa.RecordBatch]:
    """Gives the rows of a batch of readable columns, the first of which has number `first`, to `reader`."""
    for number, row in enumerate(_rows(batch, reader.columns.text_columns), start=first):
        try:
            decoded = _decoded(row)
        except UnicodeDecodeError as error:
            why = f"byte {error.start} of a value: {error.reason}"
            reader.reject(number, Reason.INVALID_UTF8, why)
            continue
        yield from reader.add(number, decoded)
        if reader.batches.done:
            return


def _decoded(row: Row) -> Row:
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}


def _rows(batch: pa.RecordBatch, text_columns: tuple[str, ...]) -> list[Row]:
    """Rows with strings as bytes, because the strings of a file may not be UTF-8."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        plain = column.dictionary_decode() if pt.is_dictionary(column.type) else column
        text = _is_string(plain.type) or (name in text_columns and _is_text(plain.type))
        columns.append(plain.cast(pa.large_binary()) if text else plain)
    return _python_rows(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))


def _python_rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows as Python values; a time that Python cannot hold becomes text. Raises UnicodeDecodeError."""
    try:
        rows: list[Row] = batch.to_pylist()
    except UnicodeDecodeError:
        raise
    except TIME_ERRORS:
        columns = [
            list(map(_value_or_text, column)) if pt.is_temporal(column.type) else column.to_pylist()
            for column in batch.columns
        ]
        rows = [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return rows


def _value_or_text(time: pa.Scalar) -> object:
    try:
        return time.as_py()
    except TIME_ERRORS:
        return f"{time.value} as {time.type}"


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Old writers do not mark strings, so bytes count as text."""
    value = _plain(kind)
    return bool(
        _is_string(value) or pt.is_binary(value) or pt.is_large_binary(value) or pt.is_binary_view(value)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind))


def _is_scalar(kind: pa.DataType) -> bool:
    value = _plain(kind)
    return bool(_is_string(value) or pt.is_primitive(value) or pt.is_decimal(value))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind
