"""Parquet files: zstd, a checksum per page, complete or absent. Memory is that of a batch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.store.damage import unreadable
from pipeline.store.files import StoredFile
from pipeline.store.manifest import File, Version
from trainer.system.durable import atomic_file

# Hardly any value occurs twice, so dictionaries and minimum and maximum would cost time and save nothing.
UNIQUE = frozenset({"id", "text", "url", "metadata"})
Readable = Path | StoredFile  # a plain file, or one of a store, which is fetched when it is opened
COMPRESSION_LEVEL = 1  # zstd-1 writes 388 MB/s and zstd-3 220, for 5% smaller files


class PartWriter:
    """Writes the tables of one part below `directory`. After a clean exit `files` lists them."""

    def __init__(self, directory: Path, name: str, schemas: Mapping[str, pa.Schema]):
        self.directory = directory
        self.files: dict[str, File] = {}
        self.rows = dict.fromkeys(schemas, 0)
        self._paths = {table: directory / table / f"{name}.parquet" for table in schemas}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._publishing = ExitStack()  # closes each writer, then gives its file the final name
        for table, schema in schemas.items():
            temporary = self._publishing.enter_context(atomic_file(self._paths[table]))
            self._writers[table] = self._publishing.enter_context(parquet_writer(temporary, schema))

    def __enter__(self) -> "PartWriter":
        return self

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Writes a batch as one row group."""
        if batch.num_rows:
            self._writers[table].write_batch(batch)
            self.rows[table] += batch.num_rows

    def __exit__(self, *error: Any) -> None:
        self._publishing.__exit__(*error)
        if error[0] is None:
            self.files = {table: File.of(path, self.directory) for table, path in self._paths.items()}


def parquet_writer(path: Path, schema: pa.Schema, content_defined: bool = False) -> pq.ParquetWriter:
    """Writes a file whose readers notice each damaged page. `content_defined`: pages end where the content
    says, so that a hub that knows the file before stores only what has changed.
    """
    repeating = [column for column in schema.names if column not in UNIQUE]
    return pq.ParquetWriter(
        path.absolute(),  # pyarrow reads `s3:/x` and `file:/x` as addresses
        schema,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=repeating,
        write_statistics=repeating,
        write_page_checksum=True,
        use_content_defined_chunking=content_defined,
    )


@contextmanager
def parquet_file(path: Readable) -> Iterator[pq.ParquetFile]:
    """The file, open to be read. Raises DamageError, also for what is read in the context."""
    with _explained(path), pq.ParquetFile(Path(path), page_checksum_verification=True) as file:
        yield file


def read_table(
    path: Readable, columns: list[str] | None = None, filters: pc.Expression | None = None
) -> pa.Table:
    """The rows that pass `filters`. Raises DamageError."""
    with _explained(path):
        return pq.read_table(Path(path), columns=columns, filters=filters, page_checksum_verification=True)


def beginnings(documents: Readable, ids: Sequence[str], characters: int) -> dict[str, str]:
    """The beginnings of the texts of those documents that have these ids."""
    wanted = pc.field("id").isin(pa.array(ids, pa.string()))
    if not read_table(documents, ["id"], wanted).num_rows:  # far less to read than the texts
        return {}
    found = read_table(documents, ["id", "text"], wanted)
    texts = pc.utf8_slice_codeunits(found.column("text"), 0, characters)
    return dict(zip(found.column("id").to_pylist(), texts.to_pylist(), strict=True))


@contextmanager
def _explained(path: Readable) -> Iterator[None]:
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


Piece = tuple[int, int]  # number and count: of the row groups of a file, one of so many nearly equal runs
WHOLE: Piece = (0, 1)


def batches(
    path: Readable, columns: list[str] | None = None, piece: Piece = WHOLE
) -> Iterator[pa.RecordBatch]:
    """The row groups of a file, one at a time, each as one batch."""
    number, count = piece
    with parquet_file(path) as file:
        first, end = (file.num_row_groups * edge // count for edge in (number, number + 1))
        for index in range(first, end):
            table = file.read_row_group(index, columns=columns, use_threads=False).combine_chunks()
            yield from table.to_batches()


def all_batches(version: Version, table: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The row groups of a table of a version, part by part, each as one batch."""
    for file in version.files(table):
        yield from batches(file, columns)


def numbered_rows(path: Readable, numbers: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows with these ascending numbers, int64. Only the row groups that hold them are read."""
    found, first = [], 0
    with parquet_file(path) as file:
        for index in range(file.num_row_groups):
            end = first + file.metadata.row_group(index).num_rows
            here = numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, end)] - first
            if len(here):
                found.append(file.read_row_group(index, columns=columns, use_threads=False).take(here))
            first = end
    return pa.concat_tables(found)


def kept_batches(
    documents: Readable, verdicts: Sequence[Readable], columns: list[str] | None = None, piece: Piece = WHOLE
) -> Iterator[pa.RecordBatch]:
    """The documents that every verdict table (`id`, `keep`) keeps, joined on id."""
    keep = [kept_ids(path) for path in verdicts]
    for batch in batches(documents, columns, piece):
        chosen = [pc.is_in(batch.column("id"), value_set=ids) for ids in keep]
        kept = reduce(pc.and_, chosen) if chosen else pa.repeat(True, batch.num_rows)
        # Filtering copies the text, so do it once, and not where every document stays.
        remaining = batch if pc.all(kept).as_py() else batch.filter(kept)
        if remaining.num_rows:
            yield remaining


def kept_ids(verdicts: Readable) -> pa.Array:
    """The ids that a verdict table keeps."""
    with parquet_file(verdicts) as file:
        table = file.read(columns=["id", "keep"], use_threads=False)
    return table.filter(table.column("keep")).column("id").combine_chunks()
