"""Kept documents -> token shards of one corpus, train and validation apart; each part makes shards of its
own.
"""

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from pipeline.recipe.shards import ShardParams
from pipeline.stages import tokenizer as bpe
from pipeline.steps.tokens.split_writer import SplitShards
from pipeline.steps.tokens.tokenizer import frozen
from pipeline.store import keys
from pipeline.store.engine import Engine
from pipeline.store.parquet import kept_batches
from pipeline.store.parts import PartTask, derive
from pipeline.store.versions import Part, Store, Version, Work

VERSION = "shards-2"
# One process encodes on all cores and reads ahead, so that two are no faster until there is so much more to
# do than in other stages.
PROCESSES_PAY_LATER = 8

SLOW = "encoding with `tokenizers`, 50 times slower: the fast encoder does not support this tokenizer: %s"
Result = TypeVar("Result")

log = logging.getLogger(__name__)


def tokenize(store: Store, engine: Engine, corpus: str, params: ShardParams) -> Version:
    """The token shards of a corpus: Megatron `.bin`/`.idx`, uint16 or uint32 by the tokenizer's largest
    id.
    """
    scrubbed, quality, dedup, tokenizer = map(
        store.current, (*keys.judged(corpus), keys.DEDUP, keys.TOKENIZER)
    )
    verdicts = {part.name: part for part in quality.parts}
    decisions = {part.name: part for part in dedup.parts}
    sources = [
        (part, verdicts[part.name], decisions[keys.decisions(corpus, part.name)]) for part in scrubbed.parts
    ]
    inputs = {
        keys.TOKENIZER: tokenizer.data_version,
        scrubbed.key: scrubbed.data_version,
        quality.key: quality.data_version,
    }
    # Only this corpus's decisions: a change in another corpus that decides nothing here leaves these shards
    # as they are.
    inputs |= {keys.dedup_part(part.name): decided.data_version for part, _, decided in sources}
    work = Work(keys.token_shards(corpus), VERSION, params, inputs)
    tasks = []
    for document_part, verdict_part, decision in sources:
        files = (
            scrubbed.file(document_part, "documents"),
            quality.file(verdict_part, "verdicts"),
            dedup.file(decision, "decisions"),
        )
        hashes = [
            document_part.files["documents"].sha256,
            verdict_part.data_version,
            decision.data_version,
            tokenizer.data_version,
        ]
        tasks.append(
            PartTask(
                document_part.name,
                work.part_fingerprint(hashes),
                files,
                files[0].stat().st_size // PROCESSES_PAY_LATER,
            )
        )
    slow = bpe.unsupported(frozen(tokenizer.path).tokenizer_json)
    if slow:
        log.info(f"%s: {SLOW}", work.key, slow)
    version = derive(
        store,
        engine,
        work,
        tasks,
        partial(_tokenize_part, tokenizer=tokenizer.path, params=params, fast=slow is None),
    )
    if version.counts["encoder_fallbacks"] and not version.reused:
        log.warning(
            "%s: %d parts were encoded by `tokenizers` after a mismatch",
            work.key,
            version.counts["encoder_fallbacks"],
        )
    return version


def prefixes(version: Version, split: str) -> list[Path]:
    """The shards of a split, in the order of the parts: each is this path with `.bin` and `.idx`."""
    tables = [
        (part, table)
        for part in version.parts
        for table in sorted(part.files)
        if table.startswith(f"{split}.") and table.endswith(".bin")
    ]
    return [version.file(part, table).with_suffix("") for part, table in tables]


def with_fallback(write: Callable[[bool], Result], fast: bool, what: str) -> Result:
    """`write(fast)`; if the fast encoder turns out to give other ids than `tokenizers`, `write(False)`."""
    try:
        return write(fast)
    except bpe.MismatchError as error:
        log.warning(
            "%s: %s; it is encoded again with `tokenizers`. Please report the document to gigatoken",
            what,
            error,
        )
        return write(False)


def _tokenize_part(task: PartTask, directory: Path, tokenizer: Path, params: ShardParams, fast: bool) -> Part:
    def write(with_fast: bool) -> Part:
        encoder, sha256 = _encoder(tokenizer, with_fast)
        writing = SplitShards(directory, task.name, encoder, params.validation_fraction, params.shard_tokens)
        writing.write(kept_batches(task.inputs[0], list(task.inputs[1:]), ["id", "text"]))
        files, counts = writing.finish(
            directory / "shards" / f"{task.name}.json", {"tokenizer_sha256": sha256}
        )
        fallbacks = int(fast and not with_fast)
        return Part(task.name, task.fingerprint, files, counts | {"encoder_fallbacks": fallbacks})

    return with_fallback(write, fast, task.name)


# loading takes as long as encoding 10 MB, and a warm encoder is twice as fast as a new one
@lru_cache(maxsize=1)
def _encoder(tokenizer: Path, fast: bool) -> tuple[bpe.Encoder, str]:
    found = frozen(tokenizer)
    return bpe.Encoder(found.tokenizer_json, found.boundaries, fast), found.sha256
