"""The documents of plain files: read in one stream, counted, and set aside where they cannot be read."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.rejects import Rejected
from pipeline.steps.corpus.rejects import REJECTS_SCHEMA, RejectsTable
from pipeline.store.errors import PipelineError
from pipeline.store.parquet import PartWriter
from pipeline.store.parts import Counts, add, text_bytes

CORPUS = "files"
PART = "part"
REJECTS = "rejects"

Progress = Callable[[int], object]  # called with the bytes of text in each batch that was read


class NoDocumentError(PipelineError):
    """Files that hold no document at all."""


@dataclass(frozen=True)
class Outcome:
    """What was counted, how long it took, and the files that were written."""

    counts: Counts
    seconds: float
    files: list[Path]


class Documents:
    """The documents of some files, and the tables below `directory` that are made of them.

    Documents keep the ids that they bring. What cannot be read goes to the table `rejects`, a few thousand
    rows at a time. Memory: a batch, and about 100 bytes for each document, by which a repeated id is found.
    """

    def __init__(self, files: FilesConfig, directory: Path, writer: PartWriter, progress: Progress):
        self.directory = directory
        self.counts: Counts = {"documents": 0, "text_bytes": 0}
        self.files: list[Path] = []
        self._started = time.perf_counter()
        self._source = FilesSource(CORPUS, files, keep_ids=True)
        self._writer = writer
        self._rejects = RejectsTable(partial(writer.write, REJECTS))
        self._progress = progress

    def __iter__(self) -> Generator[pa.RecordBatch]:
        """Each batch. Raises SourceError, and NoDocumentError when there is none."""
        for batch in self._source.read_all(self._rejects):
            size = text_bytes(batch)
            add(self.counts, {"documents": batch.num_rows, "text_bytes": size})
            self._progress(size)
            yield batch
        if not self.counts["documents"]:
            first = f"; the first: {_description(self._rejects.first)}" if self._rejects.first else ""
            raise NoDocumentError(
                f"no document in {', '.join(self._source.config.paths)}: "
                f"{self._rejects.counts['set_aside']:,} rows "
                f"or files set aside{first}"
            )

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        self._writer.write(table, rows)

    def finish(self) -> None:
        """Writes the last rejects."""
        self._rejects.finish()

    def outcome(self, counts: Mapping[str, int], files: Sequence[Path]) -> Outcome:
        """With `counts` of the work; what was read is counted here."""
        return Outcome(
            {**counts, **self.counts, **self._rejects.counts},
            time.perf_counter() - self._started,
            list(files),
        )


@contextmanager
def reading(
    files: FilesConfig, directory: Path, out: Path, schemas: Mapping[str, pa.Schema], progress: Progress
) -> Iterator[Documents]:
    """Documents to work on. On a clean exit the tables, written to `directory`, are `<out>/<table>.parquet`;
    `rejects` only if it has rows.
    """
    with PartWriter(directory, PART, {**schemas, REJECTS: REJECTS_SCHEMA}) as writer:
        documents = Documents(files, directory, writer, progress)
        yield documents
        documents.finish()
    for table, file in writer.files.items():
        written = directory / file.path
        if table != REJECTS or writer.rows[REJECTS]:
            documents.files.append(written.rename(out / f"{table}.parquet"))
        else:
            written.unlink()
        written.parent.rmdir()


def _description(rejected: Rejected) -> str:
    where = rejected.file if rejected.row is None else f"{rejected.file}, row {rejected.row}"
    return f"{where}: {rejected.reason}, {rejected.detail}"
