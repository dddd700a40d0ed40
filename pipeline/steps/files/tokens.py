"""Files in, a tokenizer or token shards out, with no store and no recipe."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages import tokenizer as bpe
from pipeline.steps.corpus.duplicate_ids import REJECTS_SCHEMA
from pipeline.steps.files.output import PART, REJECTS
from pipeline.steps.files.tables import Documents, Outcome, Progress
from pipeline.steps.tokens.existing_tokenizer import fetch
from pipeline.steps.tokens.split_writer import SplitShards
from pipeline.steps.tokens.tokenizer import frozen
from pipeline.store.atomic import output_directory
from pipeline.store.parquet import PartWriter
from pipeline.store.parts import Counts, text_bytes
from pipeline.store.prefetch import ahead
from trainer.system.durable import write_atomically

log = logging.getLogger(__name__)


def train_tokenizer(
    paths: Sequence[str], out: Path, params: bpe.TokenizerParams, progress: Progress
) -> Outcome:
    """A directory with the tokenizer, trained on the first `sample_bytes` of the files.

    Raises SourceError, OutputError, NoDocumentError and VocabularyError.
    """
    started = time.perf_counter()
    counts = {"documents": 0, "text_bytes": 0}
    with output_directory(out) as directory:
        with PartWriter(directory, PART, {REJECTS: REJECTS_SCHEMA}) as writer:
            documents = Documents(paths, writer)
            trained = bpe.train(_sample(documents, params, counts, progress), params)
        _place(bpe.files(trained, params), directory)
        _place_rejects(writer, directory)
    return Outcome(documents.counts | counts, time.perf_counter() - started, [out])


def _sample(
    documents: Documents, params: bpe.TokenizerParams, counts: Counts, progress: Progress
) -> Iterator[list[str]]:
    for batch in ahead(iter(documents)):
        texts = bpe.cut(batch.column("text"), params.max_document_chars)
        used = np.cumsum(pc.binary_length(texts).to_numpy())
        fitting = int(np.searchsorted(used, params.sample_bytes - counts["text_bytes"], side="right"))
        yield texts[:fitting].to_pylist()
        counts["documents"] += fitting
        counts["text_bytes"] += int(used[fitting - 1]) if fitting else 0
        progress(int(used[fitting - 1]) if fitting else 0)
        if fitting < len(texts):
            return


def tokenize(
    paths: Sequence[str],
    out: Path,
    tokenizer: bpe.ExistingTokenizer,
    validation_fraction: float,
    shard_tokens: int,
    progress: Progress,
) -> Outcome:
    """A directory with the shards, their record shards.json and the tokenizer.

    Raises SourceError, OutputError, NoDocumentError and TokenizerError.
    """
    files = fetch(tokenizer)
    slow = bpe.unsupported(files["tokenizer.json"])
    if slow:
        log.warning(
            "encoding with `tokenizers`, some fifty times slower than the fast encoder, which does not take "
            "this tokenizer: %s",
            slow,
        )
    arguments = (paths, out, files, validation_fraction, shard_tokens, progress)
    try:
        return _tokenize(*arguments, fast=slow is None)
    except bpe.MismatchError as error:
        log.warning("%s; starting again with `tokenizers`. Please report the document to gigatoken", error)
        return _tokenize(*arguments, fast=False)


def _tokenize(
    paths: Sequence[str],
    out: Path,
    files: Mapping[str, str],
    validation_fraction: float,
    shard_tokens: int,
    progress: Progress,
    fast: bool,
) -> Outcome:
    started = time.perf_counter()
    with output_directory(out) as directory:
        _place(files, directory)
        found = frozen(directory)
        encoder = bpe.Encoder(found.tokenizer_json, found.boundaries, fast)
        writing = SplitShards(directory, PART, encoder, validation_fraction, shard_tokens)

        def counted(documents: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in documents:
                yield batch
                progress(text_bytes(batch))

        with PartWriter(directory, PART, {REJECTS: REJECTS_SCHEMA}) as writer:
            documents = Documents(paths, writer)
            writing.write(counted(documents))
        _place_rejects(writer, directory)
        _, counts = writing.finish(directory / "shards.json", {"tokenizer_sha256": found.sha256})
    return Outcome(documents.counts | counts, time.perf_counter() - started, [out])


def _place(files: Mapping[str, str], directory: Path) -> None:
    for name, content in files.items():
        write_atomically(directory / name, content)


def _place_rejects(writer: PartWriter, directory: Path) -> None:
    """`rejects.parquet`, if anything was set aside."""
    written = directory / writer.files[REJECTS].path
    if writer.rows[REJECTS]:
        written.rename(directory / f"{REJECTS}.parquet")
    else:
        written.unlink()
    written.parent.rmdir()
