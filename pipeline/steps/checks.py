"""What is checked of each version: the table, and below it the functions, each of which says what it found in
one sentence. A limit decides whether a run goes on, never what is made.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.recipe.check_limits import CheckLimits, DedupGuard
from pipeline.recipe.recipe import Recipe
from pipeline.steps.dedup.limits import alarms, by_corpus
from pipeline.steps.model import bigram
from pipeline.steps.model import evaluate as evaluate_flow
from pipeline.steps.tokens.shards import prefixes
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.fingerprint import file_sha256
from pipeline.store.keys import SPLITS, TRAIN, VALIDATION
from pipeline.store.versions import Store, Version
from trainer.data.shards import Shard, TokenStream

BIGRAM_TOKENS = {TRAIN: 50_000_000, VALIDATION: 10_000_000}  # of each corpus at most
BLOCK_TOKENS = 8_000_000
REPORT, FINITE_REPORT = "checks-1", "finite-2"


@dataclass(frozen=True)
class Finding:
    """What a check found, in one sentence, and the numbers that it goes by."""

    passed: bool
    message: str
    numbers: dict[str, float | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A version that was just made, and what it is checked with."""

    version: Version
    store: Store
    recipe: Recipe


@dataclass(frozen=True)
class Check:
    """A check of one stage. When it fails, it stops what depends on the stage, or warns if not `blocking`."""

    stage: str
    name: str
    description: str
    look: Callable[[Subject], Finding]
    blocking: bool = True


CHECKS = (
    Check(
        "raw",
        "little_set_aside",
        "At most `checks.max_set_aside_share` of the rows cannot be read.",
        lambda it: set_aside(it.version, it.recipe.checks),
    ),
    Check(
        "scrubbed",
        "no_jump_in_pii",
        "PII per megabyte is at most `checks.max_pii_jump` times that of the previous version.",
        lambda it: pii_rate(it.store, it.version, it.recipe.checks),
        blocking=False,
    ),
    Check(
        "quality",
        "enough_is_kept",
        "The quality rules reject at most `checks.max_rejected_share` of the documents.",
        lambda it: rejected(it.version, it.recipe.checks),
    ),
    Check(
        keys.DEDUP,
        "removes_no_more_than_expected",
        "No corpus loses more than `dedup_guard.max_lost_share` of its documents, and no document stands for "
        "more than `dedup_guard.max_cluster_size`.",
        lambda it: removed(it.version, it.recipe.dedup_guard),
    ),
    Check(
        keys.TOKEN_SHARDS,
        "adds_up",
        "Every document and token is accounted for, from raw text to shards.",
        lambda it: adds_up(it.store, keys.corpus_of_shards(it.version.key)),
    ),
    Check(
        keys.TOKEN_SHARDS,
        "is_sound",
        "The files have the recorded sizes and, as `checks.shard_hashes` says, the recorded hashes.",
        lambda it: sound(it.version, it.recipe.checks),
    ),
    Check(
        keys.TOKEN_SHARDS,
        "bytes_per_token",
        "A token stands for `checks.min_bytes_per_token` to `checks.max_bytes_per_token` bytes of text.",
        lambda it: bytes_per_token(it.version, it.recipe.checks),
    ),
    Check(
        keys.PRETRAINED_MODEL,
        "losses_are_finite",
        "No loss of the run is NaN or infinite.",
        lambda it: finite(it.store, it.version),
    ),
    Check(
        keys.EVALUATION,
        "beats_a_bigram_model",
        "The model predicts held-out text better than counts of which token follows which.",
        lambda it: beats_bigram(it.store, it.version),
        blocking=False,
    ),
    Check(
        keys.EXPORTED_MODEL,
        "loads",
        "The exported files can be read back, and their logits match those of `transformers`, where that is "
        "installed.",
        lambda it: loads(it.version),
    ),
)


def of_key(key: str) -> list[Check]:
    """The checks of what the store keeps under `key`, in the order of the table."""
    return [check for check in CHECKS if check.stage == keys.stage(key)]


def set_aside(raw: Version, limits: CheckLimits) -> Finding:
    """Rows that could not be read."""
    lost, kept = raw.counts.get("set_aside", 0), raw.counts["documents"]
    share = lost / max(lost + kept, 1)
    message = (
        f"{lost:,} of {lost + kept:,} rows ({share:.2%}) were set aside, the limit is "
        f"{limits.max_set_aside_share:.2%}"
    )
    return Finding(share <= limits.max_set_aside_share, message, {"share": share, "set aside": lost})


def rejected(quality: Version, limits: CheckLimits) -> Finding:
    """Documents that quality rejects."""
    lost, documents = quality.counts["rejected"], quality.counts["documents"]
    share = lost / max(documents, 1)
    message = (
        f"quality rejects {lost:,} of {documents:,} documents ({share:.1%}), the limit is "
        f"{limits.max_rejected_share:.1%}"
    )
    return Finding(share <= limits.max_rejected_share, message, {"share": share, "rejected": lost})


def pii_rate(store: Store, scrubbed: Version, limits: CheckLimits) -> Finding:
    """Spans per megabyte of text, compared with the previous version."""
    now, before = _pii_per_megabyte(scrubbed), store.before(scrubbed)
    numbers = {"spans per MB": now}
    if before is None:
        return Finding(
            True, f"{now:.2f} spans of PII per MB; there is no previous version to compare with", numbers
        )
    then = _pii_per_megabyte(before)
    message = (
        f"{now:.2f} spans of PII per MB, {then:.2f} in the previous version; the limit is "
        f"{limits.max_pii_jump:g} times that"
    )
    # One span where there was none is not a jump: allow one more for each thousand documents.
    spare = scrubbed.counts["documents"] / 1000 / max(scrubbed.counts["text_bytes"] / 1e6, 1e-9)
    return Finding(now <= limits.max_pii_jump * (then + spare), message, numbers | {"before": then})


def _pii_per_megabyte(scrubbed: Version) -> float:
    return scrubbed.counts["spans"] / max(scrubbed.counts["text_bytes"] / 1e6, 1e-9)


def bytes_per_token(shards: Version, limits: CheckLimits) -> Finding:
    """How much text a token stands for."""
    tokens, size = (
        sum(shards.counts[f"{split}_{what}"] for split in SPLITS) for what in ("tokens", "text_bytes")
    )
    if not tokens:
        return Finding(True, "no document is left to tokenize")
    found = size / tokens
    allowed = f"{limits.min_bytes_per_token:g} to {limits.max_bytes_per_token:g}"
    message = f"{size:,} bytes in {tokens:,} tokens: {found:.2f} bytes per token, the limits are {allowed}"
    return Finding(
        limits.min_bytes_per_token <= found <= limits.max_bytes_per_token, message, {"bytes per token": found}
    )


def sound(shards: Version, limits: CheckLimits) -> Finding:
    """Every file at its size, and by choice with its hash."""
    files = [file for part in shards.parts for file in part.files.values()]
    cut = [file.path for file in files if not file.is_whole(shards.path)]
    how = f"{len(files):,} files, {shards.bytes:,} bytes: sizes as recorded"
    if not cut and limits.shard_hashes != "never":
        cut = (
            _changed(shards)
            if limits.shard_hashes == "always"
            else shards.report("hashes", REPORT, lambda: _changed(shards))
        )
        how += ", and hashes"
    message = (
        f"damaged or changed after they were written: {', '.join(cut[:3])}; delete {shards.path} and "
        "materialize it again"
        if cut
        else how
    )
    return Finding(not cut, message, {"files": len(files), "wrong": len(cut)})


def _changed(shards: Version) -> list[str]:
    return [
        file.path
        for part in shards.parts
        for file in part.files.values()
        if file_sha256(shards.path / file.path) != file.sha256
    ]


def removed(dedup: Version, guard: DedupGuard) -> Finding:
    """Documents that deduplication removes, by corpus and by cluster."""
    found = alarms(dedup, guard)
    lost, documents = dedup.counts["removed"], dedup.counts["documents"]
    message = (
        f"dedup removes {lost:,} of {documents:,} documents, within the limits of dedup_guard for "
        "each corpus and cluster"
    )
    return Finding(
        not found,
        "; ".join(found) or message,
        {"alarms": len(found), "share removed": lost / max(documents, 1)},
    )


def adds_up(store: Store, corpus: str) -> Finding:
    """Documents in = kept + rejected + removed + held out at every stage of a corpus, and tokens counted =
    tokens on disk.
    """
    raw, scrubbed, quality = (
        store.current(stage(corpus)).counts for stage in (keys.raw, keys.scrubbed, keys.quality)
    )
    transformed = keys.transformed(corpus) in store.current(keys.scrubbed(corpus)).manifest["inputs"]
    set_aside = store.current(keys.transformed(corpus)).counts["failed"] if transformed else 0
    decided = by_corpus(store.current(keys.DEDUP)).get(corpus, {"documents": 0, "kept": 0, "removed": 0})
    version = store.current(keys.token_shards(corpus))
    shards = version.counts
    on_disk = [Shard(prefix) for split in SPLITS for prefix in prefixes(version, split)]
    documents = sum(shards[f"{split}_documents"] for split in SPLITS)
    equations = [
        (
            "read, scrubbed + set aside by transforms" if transformed else "read, scrubbed",
            raw["documents"],
            scrubbed["documents"] + set_aside,
        ),
        (
            "scrubbed, kept + rejected by quality",
            scrubbed["documents"],
            quality["kept"] + quality["rejected"],
        ),
        ("kept by quality, kept + removed by dedup", quality["kept"], decided["kept"] + decided["removed"]),
        ("kept by dedup, tokenized + without text", decided["kept"], documents + shards["empty_documents"]),
        ("tokenized, in the shards", documents, sum(shard.num_documents for shard in on_disk)),
        (
            "tokens counted, in the shards",
            sum(shards[f"{split}_tokens"] for split in SPLITS),
            sum(shard.num_tokens for shard in on_disk),
        ),
    ]
    message = "; ".join(
        f"{what}: {left:,} = {right:,}" if left == right else f"{what}: {left:,} IS NOT {right:,}"
        for what, left, right in equations
    )
    return Finding(
        all(left == right for _, left, right in equations),
        message,
        {what: left for what, left, _ in equations},
    )


def finite(store: Store, model: Version) -> Finding:
    """No loss of the run is NaN or infinite but those of steps that fp16 skipped, which changed nothing."""
    metrics = plan.result(store, model)["run_dir"] / "metrics.jsonl"
    found: dict[str, Any] = model.report("finite", FINITE_REPORT, lambda: _losses(metrics))
    bad = found["bad"]
    message = (
        f"the loss is NaN or infinite at step {', '.join(map(str, bad[:3]))}"
        if bad
        else f"all {found['losses']:,} losses are finite"
    )
    return Finding(not bad, message, {"losses": found["losses"], "not finite": len(bad)})


def _losses(metrics: Path) -> dict[str, Any]:
    with metrics.open(encoding="utf-8") as lines:
        records = [record for record in map(json.loads, lines) if isinstance(record.get("loss"), float)]
    losses = [
        (record["step"], record["loss"])
        for record in records
        if math.isfinite(record["loss"]) or not record.get("skipped")
    ]
    return {"losses": len(losses), "bad": [step for step, loss in losses if not math.isfinite(loss)]}


def beats_bigram(store: Store, evaluation: Version) -> Finding:
    """The model's loss on held-out text, compared with that of a bigram model of its training shards."""
    result = plan.result(store, store.current(keys.PRETRAINED_MODEL))
    assets = json.loads((result["checkpoint"] / "lineage.json").read_text(encoding="utf-8"))["assets"]
    vocab_size = assets[keys.TOKENIZER]["counts"]["entries"]
    nats = tokens = 0.0
    for key in map(keys.token_shards, keys.corpora_with_shards(assets)):
        version = store.open(key, Path(assets[key]["path"]).name)
        found = _bigram(version, vocab_size)
        if found is not None:
            nats, tokens = nats + found["loss"] * found["tokens"], tokens + found["tokens"]
    ours, theirs = evaluate_flow.read(evaluation)["loss"], nats / max(tokens, 1)
    message = f"validation loss {ours:.3f} nats per token, a bigram model's {theirs:.3f}"
    if ours >= theirs:
        message += (
            ": the model has learnt less than which token follows which; train on more tokens, or look "
            "at the learning rate"
        )
    return Finding(ours < theirs, message, {"loss": ours, "bigram loss": theirs})


def _bigram(shards: Version, vocab_size: int) -> dict[str, float] | None:
    """The bigram model's loss and how many held-out tokens it predicts; None where nothing is held out.
    Counted once for each version.
    """
    found: dict[str, float] | None = shards.report(
        "bigram", [REPORT, vocab_size, BIGRAM_TOKENS], lambda: _counted(shards, vocab_size)
    )
    return found


def _counted(version: Version, vocab_size: int) -> dict[str, float] | None:
    """As `_bigram`, on at most BIGRAM_TOKENS."""
    held_out, trained_on = (TokenStream(prefixes(version, split)) for split in (VALIDATION, TRAIN))
    size = min(held_out.num_tokens, BIGRAM_TOKENS[VALIDATION])
    if size < 2 or not trained_on.num_tokens:
        return None
    return {
        "loss": bigram.loss(_blocks(trained_on), held_out.window(0, size), vocab_size),
        "tokens": size - 1,
    }


def _blocks(stream: TokenStream) -> Iterator[np.ndarray]:
    """Each begins with the last token of the one before, so that no pair is lost."""
    until = min(stream.num_tokens, BIGRAM_TOKENS[TRAIN])
    for start in range(0, until, BLOCK_TOKENS):
        yield stream.window(start, min(BLOCK_TOKENS + 1, until - start))


def loads(exported: Version) -> Finding:
    """The exported files are read again, and the model's logits compared with what `transformers` makes of
    them, where it is installed.
    """

    def check() -> Any:
        return json.loads(evaluate_flow.run_trainer("check", str(exported.path)))

    found: dict[str, Any] = exported.report("loads", REPORT, check)
    numbers = {
        name: found[name] for name in ("tensors", "parameters", "difference") if found[name] is not None
    }
    message = f"{found['tensors']} tensors, {found['parameters']:,} parameters, " + (
        "all finite" if found["finite"] else "NOT ALL FINITE"
    )
    if found["difference"] is None:
        return Finding(
            found["finite"],
            f"{message}; `transformers` is not installed, so its logits were not compared",
            numbers,
        )
    allowed = found["allowed_difference"]
    message += (
        f"; logits differ from those of `transformers` by at most {found['difference']:.2g}, the limit is "
        f"{allowed:.0e}"
    )
    return Finding(found["finite"] and found["difference"] <= allowed, message, numbers)
