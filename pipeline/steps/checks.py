"""The checks of each version: functions, each of which reports its finding in one sentence. A check has the
name of its function, and its description in the UI is the docstring.

A limit decides whether a run continues, never what is made.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.recipe.yaml_model import ANSWERS
from pipeline.sources.source import Reason
from pipeline.stages.quality import LANGUAGE, QualityParams
from pipeline.steps.corpus.ingest import first_reject
from pipeline.steps.corpus.quality import is_of_english, reasons
from pipeline.steps.dedup.limits import alarms, by_corpus
from pipeline.steps.model import evaluate
from pipeline.steps.tokens.shards import prefixes
from pipeline.steps.training.launcher import run_trainer
from pipeline.store import keys
from pipeline.store.damage import Look, described, inspect, remedy
from pipeline.store.keys import SPLITS, Key
from pipeline.store.manifest import Version, breakdown
from pipeline.store.params import ROLE
from pipeline.store.parquet import all_batches
from pipeline.store.store import Store
from trainer.data.shards import Shard, ShardError

HALF = 0.5
TOO_LONG = 0.05  # of the conversations
REPORT = "checks-1"


@dataclass(frozen=True)
class Finding:
    """The result of a check: one sentence, and the numbers behind it."""

    passed: bool
    message: str
    numbers: dict[str, float | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A version that was just made, with its store and recipe."""

    version: Version
    store: Store
    recipe: Recipe


Judge = Callable[[Subject], Finding]


@dataclass(frozen=True)
class Check:
    """A check of one stage. A failure stops what depends on the stage, or only warns if not `blocking`."""

    stage: str
    look: Judge
    blocking: bool

    @property
    def name(self) -> str:
        return self.look.__name__

    @property
    def description(self) -> str:
        return " ".join((self.look.__doc__ or "").split())


CHECKS: list[Check] = []


def check(stage: str, blocking: bool = True) -> Callable[[Judge], Judge]:
    """Adds a function to the checks of a stage, after those above it."""

    def added(look: Judge) -> Judge:
        CHECKS.append(Check(stage, look, blocking))
        return look

    return added


def of_key(key: Key) -> list[Check]:
    """The checks of the versions of `key`, in their order."""
    return [check for check in CHECKS if check.stage == key.stage]


@check("raw")
def little_set_aside(subject: Subject) -> Finding:
    """At most `checks.max_set_aside_share` of the rows and bytes cannot be read. What a person had removed is
    not counted.
    """
    raw, limits = subject.version, subject.recipe.checks
    lost = raw.counts.get("set_aside", 0) - raw.counts.get(f"set_aside/{keys.FORGOTTEN}", 0)
    kept = raw.counts["documents"]
    what, share = f"{lost:,} of {lost + kept:,} rows", lost / max(lost + kept, 1)
    if lost_bytes := raw.counts.get("lost_bytes", 0):
        input_bytes = max(raw.counts["input_bytes"], lost_bytes)
        share = 1 - (1 - lost_bytes / input_bytes) * (1 - share)
        what += f" and {lost_bytes:,} of {input_bytes:,} bytes of files"
    message = f"{what} ({share:.2%}) were set aside, the limit is {limits.max_set_aside_share:.2%}"
    if lost:
        why = {name: n for name, n in breakdown(raw.counts, "set_aside").items() if name != keys.FORGOTTEN}
        message += f": {', '.join(f'{name} {n:,}' for name, n in why.items())}. "
        if 2 * why.get(Reason.DUPLICATE_ID, 0) > lost:
            message += 'Give each row an `id` of its own, or set `id_column: ""` in a source of kind `files` '
            message += "or `hub`. "
        message += f"First, {first_reject(raw, raw.parts)}"
    return Finding(share <= limits.max_set_aside_share, message, {"share": share, "set aside": lost})


@check("scrubbed", blocking=False)
def half_is_left(subject: Subject) -> Finding:
    """The transforms and edits of a corpus leave at least half of its text."""
    corpus = subject.version.key.corpus
    before = map(Key.from_path, subject.version.manifest["inputs"])
    read, left = (subject.store.current(key).counts["text_bytes"] for key in (keys.raw(corpus), *before))
    share = left / max(read, 1)
    message = f"{left:,} of the {read:,} bytes of text of {corpus} are left ({share:.1%})"
    if share < HALF:
        message += ": if its transforms and edits should not remove that much, change them"
    return Finding(share >= HALF, message, {"share": share})


@check("scrubbed")
def can_be_learned(subject: Subject) -> Finding:
    """The first text of a corpus that is trained on is a conversation if the training learns from
    conversations, and is none otherwise.
    """
    corpus, objective = subject.version.key.corpus, subject.recipe.training.objective
    documents = all_batches(subject.version, "documents", ["text"])
    texts = (text for batch in documents for text in batch.column("text"))
    first = next(texts, None)
    if first is None or not subject.recipe.corpus(corpus).train:
        return Finding(True, f"nothing of {corpus} is trained on")
    found, meant = bool(re.match(ROLE, first.as_py())), objective in ANSWERS
    message = f"{corpus} holds {'conversations' if found else 'texts'}, and `objective: {objective}` learns "
    message += f"from {'conversations' if meant else 'texts'}"
    if meant and not found:
        message += f": set `format: {ANSWERS[objective]}` in its source, or leave it out (docs/chat.md)"
    elif found and not meant:
        message += ": move the corpus to a section of `post_training`, or leave it out (docs/chat.md)"
    return Finding(found == meant, message)


@check("quality")
def enough_is_kept(subject: Subject) -> Finding:
    """The quality rules reject at most `checks.max_rejected_share` of the documents."""
    quality, limits = subject.version, subject.recipe.checks
    lost, documents = quality.counts["rejected"], quality.counts["documents"]
    share = lost / max(documents, 1)
    message = (
        f"quality rejects {lost:,} of {documents:,} documents ({share:.1%}), the limit is "
        f"{limits.max_rejected_share:.1%}"
    )
    return Finding(share <= limits.max_rejected_share, message, {"share": share, "rejected": lost})


@check("quality", blocking=False)
def half_is_kept(subject: Subject) -> Finding:
    """The quality rules keep at least half of the documents."""
    quality = subject.version
    corpus, documents = quality.key.corpus, quality.counts["documents"]
    share = quality.counts["rejected"] / max(documents, 1)
    message = f"quality rejects {share:.1%} of the {documents:,} documents of {corpus}"
    if share > HALF:
        most = reasons(quality)[1]
        message += (
            f", {most.documents:,} of them by {most.rule}. `python -m pipeline inspect documents {most.rule} "
            f"--corpus {corpus}` shows some; if they are good, change "
            f"`{_setting(subject.recipe, corpus, most.rule)}` or choose another profile"
        )
        if is_of_english(subject.recipe.rules(corpus).quality, most.rule):
            setting = _setting(subject.recipe, corpus, "by_language")
            message += f", or set `{setting}: true` if the text is not in English"
    return Finding(share <= HALF, message, {"share": share})


def _setting(recipe: Recipe, corpus: str, rule: str | None) -> str:
    """The setting that decides what a quality rule rejects from a corpus."""
    section = f"corpora.{corpus}.quality" if recipe.corpus(corpus).quality else "quality"
    own = rule if rule in QualityParams.model_fields else "filters"
    return f"{section}.{'languages' if rule == LANGUAGE else own}"


@check(keys.DEDUP)
def removes_no_more_than_expected(subject: Subject) -> Finding:
    """No corpus loses more than `dedup_guard.max_lost_share` of its documents, and no document stands for
    more than `dedup_guard.max_cluster_size`.
    """
    dedup = subject.version
    found = alarms(dedup, subject.recipe.dedup_guard)
    lost, documents = dedup.counts["removed"], dedup.counts["documents"]
    message = (
        f"dedup removes {lost:,} of {documents:,} documents, within the limits of dedup_guard for "
        "each corpus and cluster"
    )
    numbers = {"alarms": len(found), "share removed": lost / max(documents, 1)}
    return Finding(not found, "; ".join(found) or message, numbers)


@check(keys.TOKEN_SHARDS)
def adds_up(subject: Subject) -> Finding:
    """Every document and token is accounted for, from raw text to shards."""
    store, corpus = subject.store, subject.version.key.corpus
    raw, scrubbed, quality = (
        store.current(stage(corpus)).counts for stage in (keys.raw, keys.scrubbed, keys.quality)
    )
    transformed = keys.transformed(corpus) in store.current(keys.scrubbed(corpus)).manifest["inputs"]
    set_aside = store.current(keys.transformed(corpus)).counts["failed"] if transformed else 0
    decided = by_corpus(store.current(keys.DEDUP)).get(corpus, {"documents": 0, "kept": 0, "removed": 0})
    version = store.current(keys.token_shards(corpus))
    try:
        on_disk = [Shard(prefix) for split in SPLITS for prefix in prefixes(version, split)]
    except ShardError as error:
        # Hashing all notes the damage, so that the next run makes it again.
        found = described(store.damage(version, Look.ALL)) or str(error)
        return Finding(False, f"{found}: {remedy(version.key)}")
    documents, tokens = _both_splits(version, "documents"), _both_splits(version, "tokens")
    judged, without_text = quality["kept"] + quality["rejected"], version.counts["empty_documents"]
    without_text += version.counts.get("too_long", 0)
    equations = [
        (
            "read, scrubbed + set aside by transforms" if transformed else "read, scrubbed",
            raw["documents"],
            scrubbed["documents"] + set_aside,
        ),
        ("scrubbed, kept + rejected by quality", scrubbed["documents"], judged),
        ("kept by quality, kept + removed by dedup", quality["kept"], decided["kept"] + decided["removed"]),
        ("kept by dedup, tokenized + without text", decided["kept"], documents + without_text),
        ("tokenized, in the shards", documents, sum(shard.num_documents for shard in on_disk)),
        ("tokens counted, in the shards", tokens, sum(shard.num_tokens for shard in on_disk)),
    ]
    message = "; ".join(
        f"{what}: {left:,} {'=' if left == right else 'IS NOT'} {right:,}" for what, left, right in equations
    )
    numbers: dict[str, float | int] = {what: left for what, left, _ in equations}
    return Finding(all(left == right for _, left, right in equations), message, numbers)


@check(keys.TOKEN_SHARDS)
def conversations_fit(subject: Subject) -> Finding:
    """At most 5 % of the conversations are left out because not even the first answer fits."""
    counts = subject.version.counts
    lost, written = counts.get("too_long", 0), _both_splits(subject.version, "documents")
    share = lost / max(lost + written, 1)
    message = f"{lost:,} of {lost + written:,} documents ({share:.1%}) are too long to be learned as a whole"
    if share > TOO_LONG:
        message += f", the limit is {TOO_LONG:.0%}: raise `training.seq_len`"
    return Finding(share <= TOO_LONG, message, {"share": share, "shortened": counts.get("shortened", 0)})


@check(keys.TOKEN_SHARDS, blocking=False)
def holds_out_text(subject: Subject) -> Finding:
    """A corpus that is trained on has held-out documents, so that it counts in the validation loss."""
    shards, fraction = subject.version, subject.recipe.shards.validation_fraction
    corpus, trained_on = shards.key.corpus, shards.counts["train_documents"]
    count = shards.counts["validation_documents"]
    message = f"{count:,} of {trained_on + count:,} documents of {corpus} are held out"
    if trained_on and not count:
        message += (
            ", so no validation loss and no evaluation covers it: raise `shards.validation_fraction`, which "
            f"is {fraction:g}, or add documents"
        )
    return Finding(count > 0 or not trained_on, message, {"held out": count, "trained on": trained_on})


@check(keys.TOKEN_SHARDS)
def is_sound(subject: Subject) -> Finding:
    """The files have the recorded sizes and hashes; a file is read once, and when it has changed."""
    shards = subject.version
    found = inspect(shards, subject.store.hashes, Look.UNREAD)
    message = (
        f"{found.files:,} files, {shards.bytes:,} bytes: sizes and hashes as recorded; {found.read:,} read "
        f"now, {found.remembered:,} unchanged since"
    )
    if found.damage:
        message = f"{described(found.damage)}: {remedy(shards.key)}"
    return Finding(not found.damage, message, {"files": found.files, "wrong": len(found.damage)})


def _both_splits(shards: Version, what: str) -> int:
    return sum(shards.counts[f"{split}_{what}"] for split in SPLITS)


@check(keys.EVALUATION, blocking=False)
def beats_a_bigram_model(subject: Subject) -> Finding:
    """The model predicts held-out text better than counts of which token follows which; a tuned one predicts
    held-out answers better than before.
    """
    evaluation = evaluate.read(subject.version)
    if tuning := evaluation.get("tuning"):
        return _beats_its_base(tuning["losses"])
    ours, theirs = evaluation["bits_per_byte"], evaluation["compressors"].get(evaluate.BIGRAM, 0.0)
    message = f"{ours:.3f} bits per byte of held-out text, a bigram model {theirs:.3f}"
    if ours >= theirs:
        message += ": the trained model is worse. Train on more tokens, or change the learning rate"
    return Finding(ours < theirs, message, {"bits per byte": ours, "of a bigram model": theirs})


def _beats_its_base(losses: dict[str, Any]) -> Finding:
    after = losses["after"]["answers"]
    if "accuracy" in after:
        passed, message = after["accuracy"] > 0.5, f"accuracy on held-out preferences {after['accuracy']:.1%}"
    else:
        before = losses.get("before", {}).get("answers") or {"loss": math.inf}  # it may know no conversations
        passed = after["loss"] < before["loss"]
        message = f"loss on held-out answers {after['loss']:.3f} nats, before tuning {before['loss']:.3f}"
    if not passed:
        message += ": tuning made nothing better. Change the learning rate, or train on more of them"
    return Finding(passed, message, {"loss": after["loss"]})


@check(keys.EXPORTED_MODEL)
def loads(subject: Subject) -> Finding:
    """The exported files can be read back, and their logits match those of `transformers`, where that is
    installed.
    """
    exported = subject.version
    found: dict[str, Any] = exported.report(
        "loads", REPORT, lambda: json.loads(run_trainer("check", f"--model={exported.directory()}"))
    )
    difference, allowed = found["difference"], found["allowed_difference"]
    finite = "all finite" if found["finite"] else "NOT ALL FINITE"
    message = f"{found['tensors']} tensors, {found['parameters']:,} parameters, {finite}; "
    numbers = {name: found[name] for name in ("tensors", "parameters")}
    if difference is None:
        message += "`transformers` is not installed or has no such model, so its logits were not compared"
        return Finding(found["finite"], message, numbers)
    message += (
        f"logits differ from those of `transformers` by at most {difference:.2g}, the limit is {allowed:.0e}"
    )
    numbers["difference"] = difference
    return Finding(found["finite"] and difference <= allowed, message, numbers)
