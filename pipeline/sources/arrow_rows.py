"""Arrow batches as rows: which columns are read, and a check of every string, which Arrow itself does not make."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, Named, Reason
from pipeline.sources.rows import Columns, Row, RowReader


def readable_columns(schema: pa.Schema, columns: Columns) -> list[str]:
    """The columns of the text and those that metadata can hold: nested and binary columns are left out."""
    text = columns.text_columns
    return [field.name for field in schema if field.name in text or (columns.wants(field.name) and _is_scalar(field.type))]


def no_text(schema: pa.Schema, columns: Columns) -> tuple[Reason, str] | None:
    """Why a table has no text to read, if so."""
    for name in columns.text_columns:
        if name not in schema.names:
            return Reason.NO_TEXT, f"no column {name!r}; there are {', '.join(schema.names)}"
        kind = schema.field(name).type
        if not (_is_text(kind) or (columns.text_template is not None and _is_number(kind))):
            return Reason.TEXT_NOT_A_STRING, f"column {name!r} is of type {kind}"
    return None


def add_rows(first: int, batch: pa.RecordBatch, reader: RowReader) -> Iterator[pa.RecordBatch]:
    """Gives the rows of a batch of readable columns, the first of which has number `first`, to `reader`.

    A batch in which there is nothing to set aside goes through whole, its texts untouched; any other row by row.
    """
    texts = _good_texts(batch, reader)
    if texts is not None:
        named = _named(first, batch.drop_columns(list(reader.columns.text_columns)), reader)
        if named is not None and reader.batches.add_whole(reader.file, texts, named):
            yield from reader.batches.full()
            return
    for number, row in enumerate(_rows(batch, reader.columns.text_columns), start=first):
        try:
            decoded = _decoded(row)
        except UnicodeDecodeError as error:
            reader.batches.reject(reader.file, number, Reason.INVALID_UTF8, f"byte {error.start} of a value: {error.reason}")
            continue
        yield from reader.add(number, decoded)
        if reader.batches.done:
            return


def _good_texts(batch: pa.RecordBatch, reader: RowReader) -> pa.LargeStringArray | None:
    """The texts of a batch if each is a document: UTF-8, of a size that documents have, and no white space only."""
    if type(reader) is not RowReader or reader.columns.text_template is not None or not batch.num_rows:
        return None
    column = batch.column(reader.columns.text_column)
    column = column.dictionary_decode() if pt.is_dictionary(column.type) else column
    if column.null_count:
        return None
    try:
        texts = column.cast(pa.large_binary()).cast(pa.large_string())  # the second cast finds what is not UTF-8
    except pa.ArrowInvalid:
        return None
    sizes = pc.min_max(pc.binary_length(texts)).as_py()
    if sizes["min"] == 0 or sizes["max"] > MAX_DOCUMENT_BYTES:
        return None
    starts = pc.binary_slice(texts.view(pa.large_binary()), 0, 1).to_pylist()
    # what begins with a visible ASCII character is not white space, and only the rest need be looked at
    return None if any(not b"!" <= start <= b"~" and texts[row].as_py().isspace() for row, start in enumerate(starts)) else texts


def _named(first: int, batch: pa.RecordBatch, reader: RowReader) -> list[Named] | None:
    """What the rows of a batch say of their documents, or None if one of them cannot be read."""
    try:
        named = [reader.name(number, _decoded(row)) for number, row in enumerate(_rows(batch, ()), start=first)]
    except UnicodeDecodeError:
        return None
    good = [one for one in named if one is not None]
    return good if len(good) == len(named) else None


def _decoded(row: Row) -> Row:
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}


def _rows(batch: pa.RecordBatch, text_columns: tuple[str, ...]) -> list[Row]:
    """Rows with strings as bytes, since what a file calls a string may not be UTF-8."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        plain = column.dictionary_decode() if pt.is_dictionary(column.type) else column
        text = _is_string(plain.type) or (name in text_columns and _is_text(plain.type))
        columns.append(plain.cast(pa.large_binary()) if text else plain)
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    rows: list[Row] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return rows


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Old writers leave strings unmarked, so bytes count as text if they are UTF-8."""
    value = _plain(kind)
    return bool(_is_string(value) or pt.is_binary(value) or pt.is_large_binary(value) or pt.is_binary_view(value))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind))


def _is_scalar(kind: pa.DataType) -> bool:
    value = _plain(kind)
    return bool(_is_string(value) or pt.is_primitive(value) or pt.is_decimal(value))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind
