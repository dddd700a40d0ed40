"""What is checked of each version, in one sentence with its numbers. What a check allows changes nothing that
is made.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.recipe.check_limits import CheckLimits
from pipeline.steps.dedup.limits import by_corpus
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
    """What a check says, and the numbers that it goes by."""

    passed: bool
    said: str
    numbers: dict[str, float | int] = field(default_factory=dict)


def set_aside(raw: Version, limits: CheckLimits) -> Finding:
    """Rows that could not be read."""
    lost, kept = raw.counts.get("set_aside", 0), raw.counts["documents"]
    share = lost / max(lost + kept, 1)
    said = (
        f"{lost:,} of {lost + kept:,} rows ({share:.2%}) were set aside, allowed are "
        f"{limits.max_set_aside_share:.2%}"
    )
    return Finding(share <= limits.max_set_aside_share, said, {"share": share, "set aside": lost})


def rejected(quality: Version, limits: CheckLimits) -> Finding:
    """Documents that quality rejects."""
    lost, documents = quality.counts["rejected"], quality.counts["documents"]
    share = lost / max(documents, 1)
    said = (
        f"quality rejects {lost:,} of {documents:,} documents ({share:.1%}), allowed are "
        f"{limits.max_rejected_share:.1%}"
    )
    return Finding(share <= limits.max_rejected_share, said, {"share": share, "rejected": lost})


def pii_rate(store: Store, scrubbed: Version, limits: CheckLimits) -> Finding:
    """Spans per megabyte of text beside the version before."""
    now, before = _pii_per_megabyte(scrubbed), store.before(scrubbed)
    numbers = {"spans per MB": now}
    if before is None:
        return Finding(
            True, f"{now:.2f} spans of PII per MB; there is no version before to compare with", numbers
        )
    then = _pii_per_megabyte(before)
    said = (
        f"{now:.2f} spans of PII per MB, {then:.2f} in the version before; allowed are "
        f"{limits.max_pii_jump:g} times as many"
    )
    # One span more where there were none is no jump: both sides get one for each document in a thousand.
    spare = scrubbed.counts["documents"] / 1000 / max(scrubbed.counts["text_bytes"] / 1e6, 1e-9)
    return Finding(now <= limits.max_pii_jump * (then + spare), said, numbers | {"before": then})


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
    said = f"{size:,} bytes in {tokens:,} tokens: {found:.2f} bytes per token, expected are {allowed}"
    return Finding(
        limits.min_bytes_per_token <= found <= limits.max_bytes_per_token, said, {"bytes per token": found}
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
    said = (
        f"damaged or changed after they were written: {', '.join(cut[:3])}; delete {shards.path} and "
        "materialize it again"
        if cut
        else how
    )
    return Finding(not cut, said, {"files": len(files), "wrong": len(cut)})


def _changed(shards: Version) -> list[str]:
    return [
        file.path
        for part in shards.parts
        for file in part.files.values()
        if file_sha256(shards.path / file.path) != file.sha256
    ]


def adds_up(store: Store, corpus: str) -> Finding:
    """Documents in = kept + rejected + removed + held out at every stage of a corpus, and tokens counted =
    tokens on disk.
    """
    raw, scrubbed, quality = (
        store.current(stage(corpus)).counts for stage in (keys.raw, keys.scrubbed, keys.quality)
    )
    decided = by_corpus(store.current(keys.DEDUP)).get(corpus, {"documents": 0, "kept": 0, "removed": 0})
    version = store.current(keys.token_shards(corpus))
    shards = version.counts
    on_disk = [Shard(prefix) for split in SPLITS for prefix in prefixes(version, split)]
    documents = sum(shards[f"{split}_documents"] for split in SPLITS)
    equations = [
        ("read, scrubbed", raw["documents"], scrubbed["documents"]),
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
    said = "; ".join(
        f"{what}: {left:,} = {right:,}" if left == right else f"{what}: {left:,} IS NOT {right:,}"
        for what, left, right in equations
    )
    return Finding(
        all(left == right for _, left, right in equations), said, {what: left for what, left, _ in equations}
    )


def finite(store: Store, model: Version) -> Finding:
    """No loss of the run is NaN or infinite but those of steps that fp16 skipped, which changed nothing."""
    metrics = plan.result(store, model)["run_dir"] / "metrics.jsonl"
    found: dict[str, Any] = model.report("finite", FINITE_REPORT, lambda: _losses(metrics))
    bad = found["bad"]
    said = (
        f"the losses of step {', '.join(map(str, bad[:3]))} are no numbers"
        if bad
        else f"all {found['losses']:,} losses are finite"
    )
    return Finding(not bad, said, {"losses": found["losses"], "not finite": len(bad)})


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
    """The model's loss on held-out text beside that of a bigram model counted on the same training shards."""
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
    said = f"validation loss {ours:.3f} nats per token, a bigram model's {theirs:.3f}"
    if ours >= theirs:
        said += (
            ": the model has learnt less than which token follows which; train on more tokens, or look "
            "at the learning rate"
        )
    return Finding(ours < theirs, said, {"loss": ours, "bigram loss": theirs})


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
    said = f"{found['tensors']} tensors, {found['parameters']:,} parameters, " + (
        "all finite" if found["finite"] else "NOT ALL FINITE"
    )
    if found["difference"] is None:
        return Finding(
            found["finite"],
            f"{said}; `transformers` is not installed, so its logits were not compared",
            numbers,
        )
    allowed = found["allowed_difference"]
    said += (
        f"; logits differ from those of `transformers` by {found['difference']:.2g} at most, allowed "
        "are "
        f"{allowed:.0e}"
    )
    return Finding(found["finite"] and found["difference"] <= allowed, said, numbers)
