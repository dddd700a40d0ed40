"""Kept documents -> token shards of one corpus, by split. Each part has its own shards."""

import logging
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from pipeline.recipe.sections import ShardParams
from pipeline.stages import tokenizer as bpe
from pipeline.steps.tokens.existing_tokenizer import CONFIG, TOKENIZER
from pipeline.steps.tokens.split_writer import SplitShards
from pipeline.steps.tokens.tokenizer import frozen
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import Readable, kept_batches
from pipeline.store.parts import PartTask, derive
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.data.shards import bin_path, idx_path

VERSION = "shards-2"
# One process encodes on all cores and reads ahead, so two are faster only on so many times more input than in
# other stages.
PROCESSES_PAY_LATER = 8

SLOW = "encoding 50 times slower with `tokenizers`: the fast encoder does not support this tokenizer: %s"

log = logging.getLogger(__name__)


def tokenize(store: Store, engine: Engine, corpus: str, params: ShardParams) -> Version:
    """The token shards of a corpus: Megatron `.bin` and `.idx`, uint16 or uint32 by the largest id."""
    scrubbed, quality, dedup, tokenizer = map(store.current, needed(corpus))
    work = tokenize_work(store, corpus, params)
    verdicts = {part.name: part for part in quality.parts}
    decided = _decided(scrubbed, dedup)
    tasks = []
    for part in scrubbed.parts:
        verdict, decision = verdicts[part.name], decided[part.name]
        files = (
            scrubbed.file(part, "documents"),
            quality.file(verdict, "verdicts"),
            dedup.file(decision, "decisions"),
        )
        made_from = [verdict.data_version, decision.data_version, tokenizer.data_version]
        fingerprint = work.part_fingerprint([part.files["documents"].sha256, *made_from])
        size = part.files["documents"].bytes // PROCESSES_PAY_LATER
        tasks.append(PartTask(part.name, fingerprint, files, size))
    slow = bpe.unsupported(frozen(tokenizer.directory()).tokenizer_json)
    if slow:
        log.info(f"%s: {SLOW}", work.key, slow)
    used = tokenizer.only(TOKENIZER), tokenizer.only(CONFIG)
    write = partial(
        tokenize_part,
        tokenizer=used,
        validation_fraction=params.validation_fraction,
        shard_tokens=params.shard_tokens,
        fast=slow is None,
    )
    version = derive(store, engine, work, tasks, write)
    fallbacks = version.counts["encoder_fallbacks"]
    if fallbacks and not version.reused:
        log.warning("%s: %d parts were encoded by `tokenizers` after a mismatch", work.key, fallbacks)
    return version


def tokenize_work(store: Store, corpus: str, params: ShardParams) -> Work:
    scrubbed, quality, dedup, tokenizer = map(store.current, needed(corpus))
    inputs = {version.key: version.data_version for version in (tokenizer, scrubbed, quality)}
    decided = _decided(scrubbed, dedup)
    inputs |= {keys.dedup_part(name): decision.data_version for name, decision in decided.items()}
    return Work(keys.token_shards(corpus), VERSION, params, inputs)


def needed(corpus: str) -> tuple[str, ...]:
    """The keys of what the shards of a corpus are made from."""
    return (*keys.judged(corpus), keys.DEDUP, keys.TOKENIZER)


def _decided(scrubbed: Version, dedup: Version) -> dict[str, Part]:
    """The decisions on each part of a corpus. Only these are inputs of its shards, so that a change in other
    corpora that decides nothing here leaves the shards valid.
    """
    corpus = keys.corpus(scrubbed.key)
    decisions = {part.name: part for part in dedup.parts}
    return {part.name: decisions[keys.decisions(corpus, part.name)] for part in scrubbed.parts}


def prefixes(version: Version, split: str) -> list[Path]:
    """The shards of a split, to be opened now, in the order of the parts: each is this path with `.bin` and
    `.idx`.
    """
    found = named(version, split)
    version.store_files.fetch_all([path(prefix) for prefix in found for path in (bin_path, idx_path)])
    return found


def named(version: Version, split: str) -> list[Path]:
    """As `prefixes`, of shards that somebody else opens."""
    return [
        version.file(part, table).path.with_suffix("")
        for part in version.parts
        for table in sorted(part.files)
        if table.startswith(f"{split}.") and table.endswith(".bin")
    ]


def tokenize_part(
    task: PartTask,
    directory: Path,
    tokenizer: tuple[Readable, ...],
    validation_fraction: float,
    shard_tokens: int,
    fast: bool,
) -> Part:
    """Writes the shards of one part with the `tokenizer`'s two files. Encodes them again with `tokenizers`
    where the fast encoder gave other ids.
    """
    encoder, sha256 = _encoder(tokenizer, fast)
    writing = SplitShards(directory, task.name, encoder, validation_fraction, shard_tokens)
    try:
        writing.write(kept_batches(task.inputs[0], list(task.inputs[1:]), ["id", "text"]))
    except bpe.MismatchError as error:
        message = "%s: %s; encoding it again with `tokenizers`. Please report the document to gigatoken"
        log.warning(message, task.name, error)
        part = tokenize_part(task, directory, tokenizer, validation_fraction, shard_tokens, fast=False)
        return replace(part, counts={**part.counts, "encoder_fallbacks": 1})
    record = directory / "shards" / f"{task.name}.json"
    files, counts = writing.finish(record, {"tokenizer_sha256": sha256})
    return Part(task.name, task.fingerprint, files, {**counts, "encoder_fallbacks": 0})


# Loading takes as long as encoding 10 MB, and a warm encoder is twice as fast as a new one.
@lru_cache(maxsize=1)
def _encoder(tokenizer: tuple[Readable, ...], fast: bool) -> tuple[bpe.Encoder, str]:
    directory, _ = (Path(file).parent for file in tokenizer)
    found = frozen(directory)
    return bpe.Encoder(found.tokenizer_json, found.boundaries, fast), found.sha256
