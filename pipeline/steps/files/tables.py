"""Files in, tables out, with no store and no recipe: scrub, quality and dedup for whoever has some files and
a question. Each runs the batch function of the stage, on windows of batches that worker processes share.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa

from pipeline.sources.files import FilesConfig
from pipeline.stages import dedup, pii, quality
from pipeline.steps.corpus.quality import judging_documents
from pipeline.steps.corpus.scrub import scrubbing
from pipeline.steps.dedup.dedup import decide
from pipeline.steps.files.documents import CORPUS, REJECTS, Documents, Outcome, Progress, reading
from pipeline.store import keys
from pipeline.store.atomic import OutputError, output_errors, temporary_directory
from pipeline.store.engine import Engine
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches, kept_batches
from pipeline.store.parts import BatchResult, BatchStep, Counts, add, text_bytes
from pipeline.store.prefetch import ahead
from pipeline.store.versions import Store
from pipeline.store.work import Work
from trainer.system.durable import sync

WINDOW_BATCHES = 8  # about 50 MB of text, which workers share
KEPT = "documents"
PART_BATCHES = 5  # about 30 MB of text in each part that dedup works on
TEXT_SCHEMA = pa.schema([DOCUMENT_SCHEMA.field("id"), DOCUMENT_SCHEMA.field("text")])


def scrub(
    files: FilesConfig, out: Path, params: pii.PiiParams, engine: Engine, progress: Progress
) -> Outcome:
    """`documents.parquet` with scrubbed text, and `spans.parquet`. Raises SourceError, OutputError and
    NoDocumentError.
    """
    return _batch_by_batch(files, out, scrubbing(params), engine, progress)


def judge(
    files: FilesConfig,
    out: Path,
    params: quality.QualityParams,
    engine: Engine,
    progress: Progress,
    kept: bool = False,
) -> Outcome:
    """`verdicts.parquet`: id, keep, rule, every signal, and the language where `params` name some. With
    `kept` also `documents.parquet`, those that stay. Raises SourceError, OutputError and NoDocumentError.
    """
    step = judging_documents(params)
    if kept:
        step = replace(
            step, function=partial(_with_kept, judge=step.function), schemas=_and_kept(step.schemas)
        )
    return _batch_by_batch(files, out, step, engine, progress)


def _with_kept(documents: pa.RecordBatch, judge: Callable[..., BatchResult]) -> BatchResult:
    tables, counts = judge(documents)
    return {**tables, KEPT: documents.filter(tables["verdicts"].column("keep"))}, counts


def _and_kept(schemas: Mapping[str, pa.Schema]) -> Mapping[str, pa.Schema]:
    return {**schemas, KEPT: DOCUMENT_SCHEMA}


def deduplicate(
    files: FilesConfig,
    out: Path,
    params: dedup.DedupParams,
    engine: Engine,
    progress: Progress,
    kept: bool = False,
) -> Outcome:
    """`decisions.parquet`, one row for each document in the order of the files. With `kept` also
    `documents.parquet`, those that stay. Raises SourceError, OutputError and NoDocumentError.

    Documents are read a second time, so they are kept, compressed, in a store below `out` until the end.
    """
    schemas: Mapping[str, pa.Schema] = {"decisions": dedup.DECISION_SCHEMA}
    with _tables(files, out, _and_kept(schemas) if kept else schemas, progress) as documents:
        store = Store(documents.directory / "store")
        stored = _stored(store, documents, DOCUMENT_SCHEMA if kept else TEXT_SCHEMA)
        decided = decide(store, engine, {CORPUS: [(stored, "documents")]}, params)
        decisions = {part.name: decided.file(part, "decisions") for part in decided.parts}
        for part in stored.parts:
            decision = decisions[keys.decisions(CORPUS, part.name)]
            for batch in batches(decision):
                documents.write("decisions", batch)
            for batch in kept_batches(stored.file(part, "documents"), [decision]) if kept else ():
                documents.write(KEPT, batch)
    return documents.outcome(decided.counts, documents.files)


@contextmanager
def _tables(
    files: FilesConfig, out: Path, schemas: Mapping[str, pa.Schema], progress: Progress
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
            temporary_directory(out, ".partial-") as directory,
            reading(files, directory, out, schemas, progress) as documents,
        ):
            yield documents
        sync(out)


def _batch_by_batch(
    files: FilesConfig, out: Path, step: BatchStep, engine: Engine, progress: Progress
) -> Outcome:
    counts: Counts = {}
    with _tables(files, out, step.schemas, progress) as documents:
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


def _stored(store: Store, documents: Documents, schema: pa.Schema) -> Version:
    """The documents as a version, in parts that workers share."""
    with store.making(Work(f"{CORPUS}/text", "text", {}, {})) as draft:
        if isinstance(draft, Version):
            return draft
        parts = []
        numbered = enumerate(ahead(documents.in_order()))
        for number, group in groupby(numbered, key=lambda item: item[0] // PART_BATCHES):
            name = f"{number:06d}"
            with PartWriter(draft.path, name, {"documents": schema}) as writer:
                for _, batch in group:
                    writer.write("documents", batch.select(schema.names))
            parts.append(Part(name, draft.work.part_fingerprint([name]), writer.files))
        return draft.publish(parts)
