"""Files in, tables out, with no store and no recipe: scrub, quality and dedup for whoever has some files and
a question.

Documents keep the ids that they bring. They are read in one stream and worked on in windows of batches, so
that memory does not grow with the files but for about 100 bytes a document, by which a repeated id is known,
and for what dedup holds.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path

import pyarrow as pa

from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.rejects import Rejected
from pipeline.stages import dedup, pii, quality
from pipeline.steps.corpus.duplicate_ids import REJECTS_SCHEMA
from pipeline.steps.corpus.quality import judging_documents
from pipeline.steps.corpus.scrub import scrubbing
from pipeline.steps.dedup import dedup as dedup_flow
from pipeline.steps.files.output import PART, REJECTS, published
from pipeline.steps.files.progress import InputBytes
from pipeline.store import keys
from pipeline.store.engine import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import BatchStep, Counts, add, text_bytes
from pipeline.store.prefetch import ahead
from pipeline.store.versions import Draft, Part, Store, Work

CORPUS = "files"
WINDOW_BATCHES = 8  # about 50 MB of text, which workers share
PART_BATCHES = 5  # about 30 MB of text in each part that dedup works on
REJECTS_TOGETHER = 4096
TEXT_SCHEMA = pa.schema([DOCUMENT_SCHEMA.field("id"), DOCUMENT_SCHEMA.field("text")])
KEEP_SCHEMA = pa.schema([quality.VERDICTS_SCHEMA.field("id"), quality.VERDICTS_SCHEMA.field("keep")])

Progress = Callable[[int], object]  # told the bytes of text of each batch that is done
InputProgress = Callable[[int, int], object]  # told bytes of the input files: done, in all


class NoDocumentError(PipelineError):
    """Files that hold no document at all."""


@dataclass(frozen=True)
class Outcome:
    """What was counted, how long it took, and the files that were written."""

    counts: Counts
    seconds: float
    files: list[Path]


def scrub(
    paths: Sequence[str], out: Path, params: pii.PiiParams, engine: Engine, progress: InputProgress
) -> Outcome:
    """`documents.parquet` with scrubbed text, and `spans.parquet`. Raises SourceError, OutputError and
    NoDocumentError.
    """
    return _batch_by_batch(paths, out, scrubbing(params), engine, progress)


def judge(
    paths: Sequence[str], out: Path, params: quality.QualityParams, engine: Engine, progress: InputProgress
) -> Outcome:
    """`verdicts.parquet`: id, keep, rule, every signal, the language if it is asked for. Raises SourceError,
    OutputError and NoDocumentError.
    """
    return _batch_by_batch(paths, out, judging_documents(params), engine, progress)


def deduplicate(
    paths: Sequence[str], out: Path, params: dedup.DedupParams, engine: Engine, progress: Progress
) -> Outcome:
    """`decisions.parquet`, one row for each document in the order of the files. Raises SourceError,
    OutputError and NoDocumentError.

    The text of candidates is needed a second time, so it is kept, compressed, in a store below `out` until
    the end.
    """
    started = time.perf_counter()
    with published(out, ["decisions", REJECTS]) as publishing:
        store = Store(publishing.directory / "store")
        with PartWriter(
            publishing.directory, PART, {"decisions": dedup.DECISION_SCHEMA, REJECTS: REJECTS_SCHEMA}
        ) as writer:
            documents = Documents(paths, writer)
            _stored(store, documents, progress)
            decided = dedup_flow.deduplicate(store, engine, [CORPUS], params)
            for path in decided.files("decisions"):
                for batch in batches(path):
                    writer.write("decisions", batch)
    return Outcome(decided.counts | documents.counts, time.perf_counter() - started, publishing.files)


def _batch_by_batch(
    paths: Sequence[str], out: Path, step: BatchStep, engine: Engine, progress: InputProgress
) -> Outcome:
    started = time.perf_counter()
    counts: Counts = {}
    schemas = {**step.schemas, REJECTS: REJECTS_SCHEMA}
    with (
        published(out, list(schemas)) as publishing,
        PartWriter(publishing.directory, PART, schemas) as writer,
    ):
        documents = Documents(paths, writer)
        position = InputBytes(documents.sizes())
        # Compressing takes longer than scrubbing, so the next batch is worked on while one is written.
        for batch, tables, counted in ahead(_worked_on(iter(documents), step, engine)):
            for name, table in tables.items():
                writer.write(name, table)
            add(counts, counted)
            progress(position.after(batch), position.total)
        progress(position.total, position.total)
    return Outcome(counts | documents.counts, time.perf_counter() - started, publishing.files)


def _worked_on(
    stream: Iterator[pa.RecordBatch], step: BatchStep, engine: Engine
) -> Iterator[tuple[pa.RecordBatch, Mapping[str, pa.RecordBatch], Counts]]:
    """Each batch of documents with its tables and counts."""
    read = 0  # starting worker processes pays once there turns out to be much to read
    for window in ahead(_windows(stream)):
        read += sum(text_bytes(batch) for batch in window)
        for batch, (tables, counts) in zip(
            window, engine.map(step.function, window, input_bytes=read, what="documents"), strict=True
        ):
            yield batch, tables, counts


def _windows(stream: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The first batch alone, so that this process compiles the kernels before others need them; then
    WINDOW_BATCHES at a time.
    """
    size = 1
    while window := list(islice(stream, size)):
        yield window
        size = WINDOW_BATCHES


def _stored(store: Store, documents: "Documents", progress: Progress) -> None:
    """Puts the documents where the dedup flow looks for those of a corpus, with a verdict table that
    keeps them all.
    """
    drafts = {
        table: _draft(store, stage) for table, stage in (("documents", "scrubbed"), ("verdicts", "quality"))
    }
    schemas = {"documents": TEXT_SCHEMA, "verdicts": KEEP_SCHEMA}
    parts: dict[str, list[Part]] = {table: [] for table in drafts}
    stream = ahead(iter(documents))
    for number in count():
        name = f"{number:06d}"
        writers = {
            table: PartWriter(draft.path, name, {table: schemas[table]}) for table, draft in drafts.items()
        }
        with writers["documents"], writers["verdicts"]:
            for batch in islice(stream, PART_BATCHES):
                writers["documents"].write("documents", batch.select(TEXT_SCHEMA.names))
                keep = pa.repeat(True, batch.num_rows)
                writers["verdicts"].write(
                    "verdicts", pa.RecordBatch.from_arrays([batch.column("id"), keep], schema=KEEP_SCHEMA)
                )
                progress(text_bytes(batch))
        if not writers["documents"].rows["documents"]:
            break
        for table, draft in drafts.items():
            parts[table].append(Part(name, draft.work.part_fingerprint([name]), writers[table].files))
    for table, draft in drafts.items():
        draft.publish(parts[table])


def _draft(store: Store, stage: str) -> Draft:
    work = Work(keys.of_corpus(CORPUS, stage), "plain", {}, {})
    store.directory(work.key).mkdir(parents=True)
    return Draft(store, work)


class Documents:
    """The documents of files as one stream; takes what is set aside, and writes it to the table `rejects` a
    few thousand rows at a time.
    """

    def __init__(self, paths: Sequence[str], writer: PartWriter):
        self.counts: Counts = {"documents": 0, "text_bytes": 0, "set_aside": 0}
        self._source = FilesSource(CORPUS, FilesConfig(paths=tuple(paths)), keep_ids=True)
        self._writer = writer
        self._rejects: list[Rejected] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source.read_all(self):
            add(self.counts, {"documents": batch.num_rows, "text_bytes": text_bytes(batch)})
            yield batch
        if not self.counts["documents"]:
            first = f"; the first: {_said(self._rejects[0])}" if self._rejects else ""
            raise NoDocumentError(
                f"no document in {', '.join(self._source.config.paths)}: {self.counts['set_aside']} rows "
                f"or files set aside{first}"
            )
        self._write()

    def sizes(self) -> dict[str, int]:
        """Bytes of each file on disk, in the order in which they are read."""
        return self._source.sizes()

    def append(self, rejected: Rejected) -> None:
        add(self.counts, {"set_aside": 1, f"set_aside/{rejected.reason}": 1})
        self._rejects.append(rejected)
        if len(self._rejects) == REJECTS_TOGETHER:
            self._write()

    def _write(self) -> None:
        self._writer.write(
            REJECTS,
            pa.RecordBatch.from_pylist(
                [asdict(rejected) for rejected in self._rejects], schema=REJECTS_SCHEMA
            ),
        )
        self._rejects.clear()


def _said(rejected: Rejected) -> str:
    where = rejected.file if rejected.row is None else f"{rejected.file}, row {rejected.row}"
    return f"{where}: {rejected.reason}, {rejected.detail}"
