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
            reader.batches.reject(reader.file, None, Reason.BROKEN_PARQUET, first_line(error), reader.bytes)
            return
        if refused := no_text(schema, reader.columns):
            reader.batches.reject(reader.file, None, *refused, reader.bytes)
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
    rows = max(1, min(group.num_rows, group.num_rows * BATCH_BYTES // max(group.total_byte_size, 1)))
    number, end = first, first + group.num_rows
    why = "the columns hold fewer rows than the file says"
    try:
        for batch in file.iter_batches(batch_size=rows, row_groups=[index], columns=names, use_threads=False):
            yield from add_rows(number, batch, reader)
            number += batch.num_rows
            if reader.batches.done:
                return
    except ROW_GROUP_ERRORS as error:
        why = first_line(error)
    if number != end:
        stored = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
        reader.batches.reject(
            reader.file,
            number,
            Reason.BROKEN_PARQUET,
            f"rows {number} to {end - 1} are lost: {why}",
            stored * (end - number) // max(group.num_rows, 1),
        )
