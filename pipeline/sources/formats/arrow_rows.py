"""Arrow batches, and Parquet files, as rows. Every string is checked to be UTF-8, which Arrow itself does not
do. Parquet is read one row group at a time: a broken one loses its own rows only.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from pipeline.sources.documents import BATCH_BYTES
from pipeline.sources.formats.rows import Columns, Row, RowReader, no_text_column
from pipeline.sources.source import Reason
from pipeline.sources.source_file import LocalFile, SourceFile
from pipeline.store.errors import first_line
from pipeline.store.fingerprint import READ_SIZE

# what is out of the range of Python's dates and times, and an unknown time zone
TIME_ERRORS = (ArithmeticError, LookupError, ValueError)
PARQUET_ERRORS = (pa.ArrowException, OSError)
# values that pyarrow cannot turn into Python's raise what Python raises
ROW_GROUP_ERRORS = (*PARQUET_ERRORS, ArithmeticError, LookupError, TypeError, ValueError)
FIRST_ROWS, MOST_ROWS, GROWTH = 16, 1024, 8  # in a batch


def readable_columns(schema: pa.Schema, columns: Columns) -> list[str]:
    """The columns of the text, those that decide about it, and those that fit into metadata; other nested and
    binary columns are left out.
    """
    text = (*columns.text_columns, *columns.companions)
    return [
        field.name
        for field in schema
        if field.name in text or (columns.wants(field.name) and _is_scalar(field.type))
    ]


def no_text(schema: pa.Schema, columns: Columns) -> tuple[Reason, str] | None:
    """Why a table has no text to read; None if it has one."""
    if why := no_text_column(schema.names, columns):
        return Reason.NO_TEXT, why
    for name in columns.text_columns if columns.format == "text" else ():
        kind = schema.field(name).type
        is_number = pt.is_integer(kind) or pt.is_floating(kind)
        if not (_is_text(kind) or (columns.text_template is not None and is_number)):
            return Reason.TEXT_NOT_A_STRING, f"column {name!r} is of type {kind}"
    return None


def add_rows(first: int, batch: pa.RecordBatch, reader: RowReader) -> Iterator[pa.RecordBatch]:
    """Gives the rows of a batch of readable columns, the first of which has number `first`, to `reader`."""
    for number, row in enumerate(_rows(batch, reader.columns.text_columns), start=first):
        if isinstance(row, UnicodeDecodeError):
            reader.reject(number, Reason.INVALID_UTF8, f"byte {row.start} of a value: {row.reason}")
            continue
        yield from reader.add(number, row)
        if reader.batches.done:
            return


def _rows(batch: pa.RecordBatch, text_columns: tuple[str, ...]) -> Iterator[Row | UnicodeDecodeError]:
    """Each row, or the error of a row whose strings are not UTF-8, which happens in files."""
    columns, texts = [], []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        plain = column.dictionary_decode() if pt.is_dictionary(column.type) else column
        if _is_string(plain.type) or (name in text_columns and _is_text(plain.type)):
            plain = plain.cast(pa.large_binary())
            texts.append(name)
        columns.append(plain)
    plain_batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    try:
        rows: Iterable[Row | UnicodeDecodeError] = _python_rows(plain_batch)
    except UnicodeDecodeError:  # in a nested column, of some row
        rows = (_row_or_error(plain_batch.slice(place, 1)) for place in range(batch.num_rows))
    for row in rows:
        yield row if isinstance(row, UnicodeDecodeError) else _decoded(row, texts)


def _decoded(row: Row, texts: Sequence[str]) -> Row | UnicodeDecodeError:
    try:
        decoded = {name: value.decode() for name in texts if isinstance(value := row[name], bytes)}
    except UnicodeDecodeError as error:
        return error
    return {**row, **decoded}


def _row_or_error(batch: pa.RecordBatch) -> Row | UnicodeDecodeError:
    try:
        return _python_rows(batch)[0]
    except UnicodeDecodeError as error:
        return error


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


def _is_scalar(kind: pa.DataType) -> bool:
    value = _plain(kind)
    return bool(_is_string(value) or pt.is_primitive(value) or pt.is_decimal(value))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def parquet_schema(stored: SourceFile) -> pa.Schema:
    """The columns of a Parquet file. Raises ArrowException, and OSError."""
    with stored.open() as handle:
        return pq.ParquetFile(handle).schema_arrow


def read_parquet(stored: SourceFile, reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of a Parquet file. Metadata has no nested or binary columns. Raises OSError."""
    with stored.open() as handle:
        try:
            # Without checksums, a flipped bit would go unnoticed. Without a buffer, the columns of a row
            # group are held in memory. Behind a URL they are, since each read there takes long. `pre_buffer`
            # would read on threads of Arrow that may still hold the file when Python ends, and abort it.
            file = pq.ParquetFile(
                handle,
                page_checksum_verification=True,
                buffer_size=READ_SIZE if isinstance(stored, LocalFile) else 0,
                pre_buffer=False,
            )
            schema = file.schema_arrow
        except PARQUET_ERRORS as error:
            reader.reject(None, Reason.BROKEN_PARQUET, first_line(error), reader.bytes)
            return
        if refused := no_text(schema, reader.columns):
            reader.reject(None, *refused, reader.bytes)
            return
        names = readable_columns(schema, reader.columns)
        first = 1
        for index in range(file.num_row_groups):
            yield from _row_group(file, index, first, names, reader)
            if reader.batches.done:
                return
            first += max(file.metadata.row_group(index).num_rows, 0)


def _row_group(
    file: pq.ParquetFile, index: int, first: int, names: list[str], reader: RowReader
) -> Iterator[pa.RecordBatch]:
    group = file.metadata.row_group(index)
    if group.num_rows < 0:
        reader.reject(first, Reason.BROKEN_PARQUET, f"its row group {index + 1} has {group.num_rows} rows")
        return
    number, end = first, first + group.num_rows
    why = "the columns hold fewer rows than the file says"
    try:
        for batch in _batches(file, index, names):
            yield from add_rows(number, batch, reader)
            number += batch.num_rows
            if reader.batches.done:
                return
    except ROW_GROUP_ERRORS as error:
        why = first_line(error)
    if number != end:
        lost = f"rows {number} to {end - 1} are lost: {why}"
        reader.reject(number, Reason.BROKEN_PARQUET, lost, rows=end - number)


def _batches(file: pq.ParquetFile, index: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a row group, about BATCH_BYTES at a time.

    What a group takes in the file does not tell: a text that a dictionary holds once may stand in each row.
    So the rows of a batch follow from the size of the batch before.
    """
    group = file.metadata.row_group(index)
    most = group.num_rows * BATCH_BYTES // max(group.total_byte_size, 1)
    most = max(1, min(most, MOST_ROWS))
    rows = min(most, FIRST_ROWS)
    for batch in file.iter_batches(batch_size=rows, row_groups=[index], columns=names, use_threads=False):
        yield batch
        fitting = batch.num_rows * BATCH_BYTES // max(batch.nbytes, 1)
        rows = max(1, min(fitting, GROWTH * rows, most))
        file.reader.set_batch_size(rows)
