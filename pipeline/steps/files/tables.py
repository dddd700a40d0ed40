"""Files in, tables out: scrub, quality and dedup for whoever has some files and a question.

The documents are read into a temporary store below the output directory, in which the step of the stage works
on them part by part. They need room there, compressed, until the end.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from pipeline.sources.files import FilesConfig
from pipeline.stages import dedup, pii, quality
from pipeline.steps.corpus.quality import judging_documents
from pipeline.steps.corpus.scrub import scrubbing
from pipeline.steps.dedup.dedup import decide
from pipeline.steps.files.documents import CORPUS, REJECTS, Documents, Outcome, Progress, reading
from pipeline.store.atomic import OutputError, output_errors, temporary_directory
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches, kept_batches
from pipeline.store.parts import BatchStep, derive, part_tasks
from pipeline.store.prefetch import ahead
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.system.durable import sync

KEPT = "documents"
PART_BATCHES = 5  # about 30 MB of text in each part

Schemas = Mapping[str, pa.Schema]
Make = Callable[[Store, Version], Version]


def scrub(
    files: FilesConfig, out: Path, params: pii.PiiParams, engine: Engine, progress: Progress
) -> Outcome:
    """`documents.parquet` with scrubbed text, and `spans.parquet`. Raises SourceError, OutputError and
    NoDocumentError.
    """
    step = scrubbing(params)
    return _tables(files, out, step.schemas, partial(_derived, step=step, engine=engine), progress)


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
    make = partial(_derived, step=step, engine=engine)
    return _tables(files, out, step.schemas, make, progress, "verdicts" if kept else None)


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
    """

    def make(store: Store, documents: Version) -> Version:
        return decide(store, engine, {CORPUS: [(documents, "documents")]}, params)

    schemas = {"decisions": dedup.DECISION_SCHEMA}
    return _tables(files, out, schemas, make, progress, "decisions" if kept else None)


def _derived(store: Store, documents: Version, step: BatchStep, engine: Engine) -> Version:
    work = Work(f"{CORPUS}/result", "files", {}, {documents.key: documents.data_version})
    return derive(store, engine, work, part_tasks(work, [(documents, "documents")]), step.write_part)


def _tables(
    files: FilesConfig,
    out: Path,
    schemas: Schemas,
    make: Make,
    progress: Progress,
    kept_by: str | None = None,
) -> Outcome:
    """Writes the tables of what `make` makes from the documents, and the documents that the table `kept_by`
    keeps.
    """
    written = {**schemas, KEPT: DOCUMENT_SCHEMA} if kept_by else schemas
    with _output(files, out, written, progress) as documents:
        store = Store(documents.directory / "store")
        stored = _stored(store, documents)
        made = make(store, stored)
        for source, part in zip(stored.parts, made.parts, strict=True):
            for table in schemas:
                for batch in batches(made.file(part, table)):
                    documents.write(table, batch)
            if kept_by:
                for batch in kept_batches(stored.file(source, "documents"), [made.file(part, kept_by)]):
                    documents.write(KEPT, batch)
    return documents.outcome(made.counts, documents.files)


@contextmanager
def _output(files: FilesConfig, out: Path, schemas: Schemas, progress: Progress) -> Iterator[Documents]:
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


def _stored(store: Store, documents: Documents) -> Version:
    """The documents as a version, in parts that workers share."""
    with store.making(Work(f"{CORPUS}/text", "text", {}, {})) as draft:
        if isinstance(draft, Version):
            return draft
        parts = []
        numbered = enumerate(ahead(iter(documents)))
        for number, group in groupby(numbered, key=lambda item: item[0] // PART_BATCHES):
            name = f"{number:06d}"
            with PartWriter(draft.path, name, {"documents": DOCUMENT_SCHEMA}) as writer:
                for _, batch in group:
                    writer.write("documents", batch)
            parts.append(Part(name, draft.work.part_fingerprint([name]), writer.files))
        return draft.publish(parts)
