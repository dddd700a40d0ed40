"""Files in, tables out, with no store and no recipe: scrub, quality and dedup for whoever has some files and
a question. Each runs the batch function of the stage, on windows of batches that worker processes share.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa

from pipeline.stages import dedup, pii, quality
from pipeline.steps.corpus.quality import judging_documents
from pipeline.steps.corpus.scrub import scrubbing
from pipeline.steps.dedup.dedup import decide
from pipeline.steps.files.documents import CORPUS, REJECTS, Documents, Outcome, Progress, reading
from pipeline.store.atomic import OutputError, output_errors
from pipeline.store.engine import Engine
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import BatchResult, BatchStep, Counts, add, text_bytes
from pipeline.store.prefetch import ahead
from pipeline.store.versions import Store, Work
from trainer.system.durable import sync

WINDOW_BATCHES = 8  # about 50 MB of text, which workers share
PART_BATCHES = 5  # about 30 MB of text in each part that dedup works on
TEXT_SCHEMA = pa.schema([DOCUMENT_SCHEMA.field("id"), DOCUMENT_SCHEMA.field("text")])


def scrub(
    paths: Sequence[str], out: Path, params: pii.PiiParams, engine: Engine, progress: Progress
) -> Outcome:
    """`documents.parquet` with scrubbed text, and `spans.parquet`. Raises SourceError, OutputError and
    NoDocumentError.
    """
    return _batch_by_batch(paths, out, scrubbing(params), engine, progress)


def judge(
    paths: Sequence[str], out: Path, params: quality.QualityParams, engine: Engine, progress: Progress
) -> Outcome:
    """`verdicts.parquet`: id, keep, rule, every signal, and the language where `params` name some. Raises
    SourceError, OutputError and NoDocumentError.
    """
    return _batch_by_batch(paths, out, judging_documents(params), engine, progress)


def deduplicate(
    paths: Sequence[str], out: Path, params: dedup.DedupParams, engine: Engine, progress: Progress
) -> Outcome:
    """`decisions.parquet`, one row for each document in the order of the files. Raises SourceError,
    OutputError and NoDocumentError.

    The text of candidates is read a second time, so it is kept, compressed, in a store below `out` until the
    end.
    """
    with _tables(paths, out, {"decisions": dedup.DECISION_SCHEMA}, progress) as documents:
        store = Store(documents.directory / "store")
        decided = decide(store, engine, {CORPUS: [(_text(store, documents), "documents")]}, params)
        for path in decided.files("decisions"):
            for batch in batches(path):
                documents.write("decisions", batch)
    return documents.outcome(decided.counts, documents.files)


@contextmanager
def _tables(
    paths: Sequence[str], out: Path, schemas: Mapping[str, pa.Schema], progress: Progress
) -> Iterator[Documents]:
    """Documents to make `<out>/<table>.parquet` of; `out` may hold other files.

    Raises OutputError when `out` holds one of the tables already or cannot be written.
    """
    there = [f"{table}.parquet" for table in [*schemas, REJECTS] if (out / f"{table}.parquet").exists()]
    if there:
        raise OutputError(f"{out} already holds {', '.join(there)}: name another directory, or delete them")
    with output_errors(out):  # an input that cannot be read is set aside, so these are about writing
        out.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=".partial-", dir=out) as directory,
            reading(paths, Path(directory), out, schemas, progress) as documents,
        ):
            yield documents
        sync(out)


def _batch_by_batch(
    paths: Sequence[str], out: Path, step: BatchStep, engine: Engine, progress: Progress
) -> Outcome:
    counts: Counts = {}
    with _tables(paths, out, step.schemas, progress) as documents:
        # Compressing takes longer than scrubbing, so the next batch is worked on while one is written.
        for batch, (tables, counted) in ahead(_results(documents, step, engine)):
            for name, rows in tables.items():
                documents.write(name, rows)
            add(counts, counted)
            documents.done(batch)
    return documents.outcome(counts, documents.files)


def _results(
    documents: Documents, step: BatchStep, engine: Engine
) -> Iterator[tuple[pa.RecordBatch, BatchResult]]:
    read = 0  # starting worker processes pays once there turns out to be much to read
    for window in ahead(_windows(iter(documents))):
        read += sum(map(text_bytes, window))
        yield from zip(
            window, engine.map(step.function, window, input_bytes=read, what="documents"), strict=True
        )


def _windows(stream: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The first batch alone, so that this process compiles the kernels before others need them; then
    WINDOW_BATCHES at a time.
    """
    size = 1
    while window := list(islice(stream, size)):
        yield window
        size = WINDOW_BATCHES


def _text(store: Store, documents: Documents) -> Version:
    """The ids and texts of the documents as a version, in parts that workers share."""
    with store.making(Work(f"{CORPUS}/text", "text", {}, {})) as draft:
        if isinstance(draft, Version):
            return draft
        parts = []
        numbered = enumerate(ahead(documents.in_order()))
        for number, group in groupby(numbered, key=lambda item: item[0] // PART_BATCHES):
            name = f"{number:06d}"
            with PartWriter(draft.path, name, {"documents": TEXT_SCHEMA}) as writer:
                for _, batch in group:
                    writer.write("documents", batch.select(TEXT_SCHEMA.names))
            parts.append(Part(name, draft.work.part_fingerprint([name]), writer.files))
        return draft.publish(parts)
