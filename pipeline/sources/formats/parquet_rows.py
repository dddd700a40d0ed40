"""Parquet files, one row group at a time: a broken row group loses its own rows only."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.sources.documents import BATCH_BYTES
from pipeline.sources.formats.arrow_rows import add_rows, no_text, readable_columns
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.rejects import Reason
from pipeline.sources.source_file import SourceFile
from pipeline.store.errors import first_line

PARQUET_ERRORS = (pa.ArrowException, OSError)
# values that pyarrow cannot turn into Python's raise what Python raises
ROW_GROUP_ERRORS = (*PARQUET_ERRORS, ArithmeticError, LookupError, TypeError, ValueError)
FIRST_ROWS, MOST_ROWS, GROWTH = 16, 1024, 8  # in a batch


def read_parquet(stored: SourceFile, reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The documents of a Parquet file. Nested and binary columns are left out of the metadata. Raises
    OSError.
    """
    with stored.open() as handle:
        try:
            # without checksums, a flipped bit would go unnoticed
            file = pq.ParquetFile(handle, page_checksum_verification=True)
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
            first += file.metadata.row_group(index).num_rows


def _row_group(
    file: pq.ParquetFile, index: int, first: int, names: list[str], reader: RowReader
) -> Iterator[pa.RecordBatch]:
    group = file.metadata.row_group(index)
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
