"""Files in; tables, token shards or a tokenizer out: the stages for whoever has some files and a question.

The documents are read into a temporary store below the output, in which the steps of the stages work on them.
They need room there, compressed, until the end. Only a tokenizer is trained while its sample is being read.

All raise SourceError, OutputError and PipelineError, those about tokenizers also TokenizerError.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.stages import bpe, dedup, pii, quality
from pipeline.steps.corpus.quality import judging_documents
from pipeline.steps.corpus.rejects import REJECTS_SCHEMA, RejectsTable
from pipeline.steps.corpus.scrub import scrubbing
from pipeline.steps.dedup.dedup import Dedup
from pipeline.steps.dedup.signatures import Signatures
from pipeline.steps.tokens.existing_tokenizer import fetch
from pipeline.steps.tokens.shards import SLOW, tokenize_part, warn_of_loss
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.steps.tokens.word_counts import sample
from pipeline.store.atomic import OutputError, output_directory, output_errors, temporary_directory
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches, kept_batches
from pipeline.store.parts import BatchStep, Counts, PartTask, add, derive, part_tasks, text_bytes
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.config.model_files import TOKENIZER, TOKENIZER_CONFIG
from trainer.system.durable import read_json, sync, write_atomically
from trainer.system.prefetch import ahead, in_threads
from trainer.system.wording import counted

CORPUS = "files"
TEXT = Key(CORPUS, name="text")
PART = "part"
KEPT, REJECTS = "documents", "rejects"
PART_BATCHES = 5  # about 30 MB of text in each part
ONE_PART = sys.maxsize

Schemas = Mapping[str, pa.Schema]
Make = Callable[[Store, Version], Version]
Read = Callable[[int], object]  # called with the bytes of text in each batch that was read

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Results:
    """What was counted, how long it took, and the files that were written."""

    counts: Counts
    seconds: float
    files: list[Path]


def scrub(files: FilesConfig, out: Path, params: pii.PiiParams, engine: Engine, progress: Read) -> Results:
    """Scrubbed `documents.parquet`, `spans.parquet`."""
    return _stepped(files, out, scrubbing(params), engine, progress)


def judge(
    files: FilesConfig,
    out: Path,
    params: quality.QualityParams,
    engine: Engine,
    progress: Read,
    *,
    kept: bool = False,
) -> Results:
    """`verdicts.parquet`: id, keep, rule, every signal, and the language where `params` name some. With
    `kept` also `documents.parquet`, those that stay.
    """
    return _stepped(files, out, judging_documents(params), engine, progress, kept=kept)


def deduplicate(
    files: FilesConfig,
    out: Path,
    params: dedup.DedupParams,
    engine: Engine,
    progress: Read,
    *,
    kept: bool = False,
) -> Results:
    """`decisions.parquet`, one row for each document in the order of the files. With `kept` also
    `documents.parquet`, those that stay.
    """
    signed = _Unjudged(CORPUS, params, decontaminated=False, compared=True)

    def make(store: Store, documents: Version) -> Version:
        return Dedup(params, [signed], excluded=()).make(store, engine)

    return _tables(files, out, {"decisions": dedup.DECISION_SCHEMA}, make, progress, kept=kept)


def train_tokenizer(files: FilesConfig, out: Path, progress: Read, params: bpe.TokenizerParams) -> Results:
    """A directory with the tokenizer, trained on the first `sample_bytes` of the files."""
    with output_directory(out) as directory, _reading(files, directory, {}, progress) as documents:
        counts: Counts = {"documents": 0, "text_bytes": 0}
        with closing(ahead(iter(documents))) as stream:  # the sample may end before the files do
            texts = (batch.column("text") for batch in stream)
            columns = ([column] for column in sample(texts, params.sample_bytes, counts))
            count = partial(bpe.count_words, pattern=params.pattern, single_digits=params.single_digits)
            words = bpe.added(in_threads(count, columns, len(os.sched_getaffinity(0))))
        _write(bpe.files(bpe.train_on_words(words, params)), directory)
    return documents.outcome(counts, [out])


def tokenize(
    files: FilesConfig, out: Path, progress: Read, tokenizer: bpe.ExistingTokenizer, params: ShardParams
) -> Results:
    """A directory with the shards, their record shards.json and the tokenizer."""
    fetched = fetch(tokenizer)
    slow = bpe.unsupported(fetched[TOKENIZER])
    if slow:
        log.warning(SLOW, slow)
    with output_directory(out) as directory, _reading(files, directory, {}, progress) as documents:
        _write(fetched, directory)
        _, stored = documents.stored(ONE_PART)
        task = PartTask(PART, "", tuple(stored.files("documents")), 0)
        used = directory / TOKENIZER, directory / TOKENIZER_CONFIG
        part = tokenize_part(task, directory, used, params, fast=slow is None)
        warn_of_loss(str(out), part.counts)
        _complete(directory / part.files["shards"].path, directory)
    return documents.outcome({**part.counts, **documents.counts}, [out])


def _complete(record: Path, directory: Path) -> None:
    """Moves the record of the shards into `directory`, with what a trainer must know of the tokenizer."""
    content = read_json(record)
    found = TokenizerFiles.read(directory)
    facts = {
        "dtype": content["dtype"],
        "tokenizer_sha256": found.sha256,
        "vocab_size": bpe.Encoder(found.tokenizer_json, found.boundaries, fast=False).max_id + 1,
        "bot_id": found.boundaries.begin,
        "eot_id": found.boundaries.end,
    }
    write_atomically(directory / "shards.json", json.dumps(facts | content, indent=1))
    record.unlink()
    record.parent.rmdir()


def _write(files: Mapping[str, str], directory: Path) -> None:
    for name, content in files.items():
        write_atomically(directory / name, content)


def _stepped(
    files: FilesConfig, out: Path, step: BatchStep, engine: Engine, progress: Read, *, kept: bool = False
) -> Results:
    def make(store: Store, documents: Version) -> Version:
        key = Key(CORPUS, name=next(iter(step.schemas)))
        work = Work(key, "files", {}, store.data_versions([TEXT]))
        return derive(store, engine, work, part_tasks(work, [(documents, "documents")]), step.write_part)

    return _tables(files, out, step.schemas, make, progress, kept=kept)


def _tables(
    files: FilesConfig, out: Path, schemas: Schemas, make: Make, progress: Read, *, kept: bool
) -> Results:
    """Writes the tables in `schemas`, which `make` makes from the documents. With `kept`, also writes the
    documents that the only one of these tables keeps. `out` may hold other files.
    """
    written = {**schemas, KEPT: DOCUMENT_SCHEMA} if kept else schemas
    there = [f"{table}.parquet" for table in [*written, REJECTS] if (out / f"{table}.parquet").exists()]
    if there:
        raise OutputError(f"{out} already holds {', '.join(there)}: name another directory, or delete them")
    with output_errors(out):  # an input that cannot be read is set aside, so these are about writing
        with _reading(files, out, written, progress) as documents:
            store, stored = documents.stored(PART_BATCHES)
            made = make(store, stored)
            for source, part in zip(stored.parts, made.parts, strict=True):
                rows = {table: batches(made.file(part, table)) for table in schemas}
                if kept:
                    verdicts = [made.file(part, table) for table in schemas]
                    rows[KEPT] = kept_batches(stored.file(source, "documents"), verdicts)
                for table, of_table in rows.items():
                    for batch in of_table:
                        documents.writer.write(table, batch)
        sync(out)
    return documents.outcome({**made.counts, **documents.counts}, documents.files)


@contextmanager
def _reading(files: FilesConfig, out: Path, schemas: Schemas, progress: Read) -> Iterator["Documents"]:
    """Yields the documents, whose writer takes the rows of the tables. On a clean exit each table is in
    `<out>/<table>.parquet`, and so is `rejects` if it has rows.
    """
    with temporary_directory(out, ".partial-") as directory:
        with PartWriter(directory, PART, {**schemas, REJECTS: REJECTS_SCHEMA}) as writer:
            documents = Documents(files, writer, progress)
            yield documents
            documents.rejects.finish()
        for table, file in writer.files.items():
            if table != REJECTS or writer.rows[REJECTS]:
                documents.files.append((directory / file.path).rename(out / f"{table}.parquet"))


class _Unjudged(Signatures):
    """The signatures of the documents, on which no stage has a verdict."""

    inputs = (TEXT,)


class Documents:
    """The documents of some files, which keep the ids that they bring. What cannot be read goes to the table
    `rejects`, a few thousand rows at a time.

    Memory: a batch, and about 100 bytes for each document, by which a repeated id is found.
    """

    def __init__(self, files: FilesConfig, writer: PartWriter, progress: Read):
        self.writer = writer
        self.counts: Counts = {"documents": 0, "text_bytes": 0}
        self.files: list[Path] = []
        self.rejects = RejectsTable(partial(writer.write, REJECTS))
        self._started = time.perf_counter()
        self._source = FilesSource(CORPUS, files, keep_ids=True)
        self._progress = progress

    def __iter__(self) -> Generator[pa.RecordBatch]:
        """Each batch. Raises SourceError, and PipelineError when there is none."""
        for batch in self._source.read_all(self.rejects):
            size = text_bytes(batch)
            add(self.counts, {"documents": batch.num_rows, "text_bytes": size})
            self._progress(size)
            yield batch
        if not self.counts["documents"]:
            one, first = self.rejects.first, ""
            if one:
                where = one.file if one.row is None else f"{one.file}, row {one.row}"
                first = f"; the first: {where}: {one.reason}, {one.detail}"
            raise PipelineError(
                f"no document in {', '.join(self._source.config.paths)}: "
                f"{counted(self.rejects.counts['set_aside'], 'rows or files')} set aside{first}"
            )

    def stored(self, part_batches: int) -> tuple[Store, Version]:
        """A temporary store with the documents as a version, in parts of so many batches for workers."""
        store = Store(self.writer.directory / "store")
        with store.making(Work(TEXT, "text", {}, {})) as draft:
            assert not isinstance(draft, Version), "the store is new"
            parts = []
            numbered = enumerate(ahead(iter(self)))
            for number, group in groupby(numbered, key=lambda item: item[0] // part_batches):
                name = f"{number:06d}"
                with PartWriter(draft.path, name, {"documents": DOCUMENT_SCHEMA}) as writer:
                    for _, batch in group:
                        writer.write("documents", batch)
                parts.append(Part(name, draft.work.part_fingerprint([name]), writer.files))
            return store, draft.publish(parts)

    def outcome(self, counts: Counts, files: list[Path]) -> Results:
        return Results({**counts, **self.rejects.counts}, time.perf_counter() - self._started, files)
