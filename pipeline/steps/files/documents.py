"""The documents of plain files: read in one stream, counted, and set aside where they cannot be read."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.rejects import Rejected
from pipeline.steps.corpus.rejects import REJECTS_SCHEMA, RejectsTable
from pipeline.store.errors import PipelineError
from pipeline.store.parquet import PartWriter
from pipeline.store.parts import Counts, add, text_bytes

CORPUS = "files"
PART = "part"
REJECTS = "rejects"

# Bytes of text for each byte of a file, until one file has been read to its end.
PACKED, PLAIN = 3.0, 1.0
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".parquet")

Progress = Callable[[int, int], object]  # called with the bytes of the input files: done, in all


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
        self._read_bytes = _InputBytes(self._source.sizes())
        self._progress = progress

    def __iter__(self) -> Generator[pa.RecordBatch]:
        """Each batch. Raises SourceError, and NoDocumentError when there is none."""
        for batch in self._source.read_all(self._rejects):
            add(self.counts, {"documents": batch.num_rows, "text_bytes": text_bytes(batch)})
            yield batch
        if not self.counts["documents"]:
            first = f"; the first: {_description(self._rejects.first)}" if self._rejects.first else ""
            raise NoDocumentError(
                f"no document in {', '.join(self._source.config.paths)}: "
                f"{self._rejects.counts['set_aside']:,} rows "
                f"or files set aside{first}"
            )

    def in_order(self) -> Generator[pa.RecordBatch]:
        """Each batch, for work that is done with one when it asks for the next."""
        for batch in self:
            yield batch
            self.done(batch)

    def done(self, batch: pa.RecordBatch) -> None:
        """Reports that the work on a batch is finished; batches come in the order of the files."""
        self._progress(self._read_bytes.after(batch), self._read_bytes.total)

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        self._writer.write(table, rows)

    def finish(self) -> None:
        """Writes the last rejects."""
        self._rejects.finish()
        self._progress(self._read_bytes.total, self._read_bytes.total)

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


class _InputBytes:
    """Bytes of input files read so far, as they are on disk: exact where a file ends, in between estimated
    from the text that came out of it.
    """

    def __init__(self, sizes: Mapping[str, int]):
        """`sizes`: bytes of each file by name, in the order in which they are read."""
        self.total = sum(sizes.values())
        self._sizes = sizes
        self._before = 0  # bytes of the files that were read to their end
        self._text = 0  # bytes of text that came out of all files
        self._file = next(iter(sizes))
        self._text_of_file = 0

    def after(self, documents: pa.RecordBatch) -> int:
        """How many bytes are done with this batch."""
        sources = documents.column("source")
        last = sources[-1].as_py()
        if last != self._file:
            names = list(self._sizes)
            self._before = sum(self._sizes[name] for name in names[: names.index(last)])
            self._file, self._text_of_file = last, 0
        self._text += text_bytes(documents)
        self._text_of_file += text_bytes(documents.filter(pc.equal(sources, last)))
        return self._before + min(self._sizes[last], round(self._text_of_file / self._expansion()))

    def _expansion(self) -> float:
        if self._before:
            return max((self._text - self._text_of_file) / self._before, 0.01)
        return PACKED if PurePath(self._file).suffix in PACKED_SUFFIXES else PLAIN


def _description(rejected: Rejected) -> str:
    where = rejected.file if rejected.row is None else f"{rejected.file}, row {rejected.row}"
    return f"{where}: {rejected.reason}, {rejected.detail}"
