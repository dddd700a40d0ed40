"""lineage: shows what a checkpoint was made from, or which checkpoints saw a corpus or a document."""

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pipeline.cli.forget import costs, forgotten_before, read_by
from pipeline.cli.opening import UsageError, add_checkpoint, named_checkpoint, whole_store
from pipeline.recipe import non_defaults
from pipeline.reports import branches, tables
from pipeline.reports.tables import Output
from pipeline.steps.forget import to_forget
from pipeline.steps.lineage.checkpoints import Checkpoint, LineageError, Sighting, TrainedModel, that_saw
from pipeline.steps.lineage.readers import Reading, readings
from pipeline.steps.lineage.record import described_commit
from pipeline.steps.model.batch_rows import Row, global_batch_rows
from pipeline.store import keys
from pipeline.store.cleanup.holding_forgotten import holding
from pipeline.store.fingerprint import HASH_SHOWN
from pipeline.store.forgotten import among
from pipeline.store.keys import Key
from pipeline.store.manifest import breakdown
from pipeline.store.store import Store
from trainer.system import terminal
from trainer.system.wording import counted

LABEL = 13  # characters of the labels on the left
Entries = Iterable[tuple[str, str]]  # labels, and texts
_wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)  # a path is never cut


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    parser.add_argument(
        "--corpus",
        metavar="C",
        help="list the checkpoints on disk that were trained on this corpus, themselves or through the "
        "weights they started from",
    )
    parser.add_argument(
        "--version",
        metavar="V",
        help="with --corpus: only this data version of one of its stages, or this revision of its source",
    )
    parser.add_argument(
        "--document",
        metavar="ID",
        help="show what happened to this document, and list the checkpoints that were trained on it; ID is "
        "the store's or the one that the source gives it",
    )
    parser.add_argument(
        "--step", metavar="N", type=int, help="list the rows of the batch of this step, and their documents"
    )
    parser.add_argument(
        "--losses",
        action="store_true",
        help="with --step: the rows with the highest loss first, under the newest checkpoint before it",
    )
    parser.add_argument("--json", action="store_true", help="print everything, defaults too, as JSON")


def run(options: argparse.Namespace) -> None:
    _check(options)
    with terminal.doing("reading the lineage of checkpoints"):
        shown = _output(whole_store(), options).shown(options.json)
    print(shown)


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together."""
    asked = [options.checkpoint, options.variant, options.corpus, options.document]
    if len(asked) - asked.count(None) != 1:
        raise UsageError("lineage: give one of CHECKPOINT, --variant, --corpus and --document")
    if options.version and not options.corpus:
        raise UsageError("--version: name the corpus with --corpus, too")
    if options.step is not None and not (options.checkpoint or options.variant):
        raise UsageError("--step: name a checkpoint of the run, too")
    if options.losses and options.step is None:
        raise UsageError("--losses: name the step with --step, too")


def _output(store: Store, options: argparse.Namespace) -> Output:
    if options.corpus is not None:
        sightings = that_saw(store, options.corpus, options.version)
        seen = [_sighting(sighting, options.corpus) for sighting in sightings]
        return Output(seen, _sightings(sightings, seen, options.corpus))
    if options.document is not None:
        read = _read_by(store, options.document)
        return Output(read, _document(store, read))
    named = named_checkpoint(store, options)
    if options.step is not None:
        rows, by = global_batch_rows(store, named, options.step, options.losses)
        return Output({"step": options.step, "losses_by": by, "rows": rows}, _rows(rows, by))
    facts = {"path": str(named.path), "saved": named.saved, "model_only": named.is_model_only}
    everything = {"checkpoint": named.name, **facts, **named.lineage}
    return Output(everything, described(named, shutil.get_terminal_size().columns))


def described(checkpoint: Checkpoint, width: int = 100) -> Iterator[str]:
    """A checkpoint's lineage in lines of `width` characters, with the settings that are no defaults."""
    recipe, assets = checkpoint.lineage["recipe"], checkpoint.lineage["assets"]
    yield from _entries(_facts(checkpoint), width)
    for corpus in recipe["corpora"]:
        name = corpus["name"]
        tokens, epochs = checkpoint.corpus_tokens.get(name, 0), checkpoint.epochs(name)
        yield f"\ncorpus {name}: {tokens:,} tokens trained on by then, {epochs:.3f} epochs"
        yield from _entries(_corpus(checkpoint, corpus), width)
    yield "\nall corpora"
    yield from _entries(((f"  {key}", _stage(assets[key])) for key in (keys.DEDUP, keys.TOKENIZER)), width)
    yield "\nsettings that differ from the defaults (--json has all)"
    for name, settings in non_defaults.of_recipe(recipe).items():
        yield from _entries(_sections(name, settings), width)


def _entries(entries: Entries, width: int) -> Iterator[str]:
    """Each label with its text beside it, or on lines of its own if the label is long."""
    for label, text in entries:
        lines = _wrap(text, max(width - LABEL, 40)) or [""]
        yield f"{label:<{LABEL - 1}} {lines.pop(0)}" if len(label) < LABEL else label
        yield from (" " * LABEL + line for line in lines)


def _facts(checkpoint: Checkpoint) -> Entries:
    """What holds for all corpora."""
    lineage = checkpoint.lineage
    yield "checkpoint", f"{checkpoint.name}, after {checkpoint.tokens:,} tokens"
    deleted = "" if checkpoint.saved else ", deleted since then; the lineage is from the record of its run"
    yield "path", f"{checkpoint.path}{deleted}"
    if checkpoint.is_model_only and not checkpoint.merged:
        yield "optimizer", "not kept (training.checkpoint.optimizer): training cannot resume from here"
    variant = f", variant {lineage['variant']}" if "variant" in lineage else ""
    yield "recipe", f"{lineage['recipe']['name']}{variant}"
    yield "code", described_commit(lineage["git_commit"])
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(checkpoint.libraries.items()))
    yield "libraries", libraries or "unknown, the step was deleted"
    for number, merged in enumerate(checkpoint.merged):
        yield "" if number else "mean of", _merged(merged)
    for number, origin in enumerate(_origins(checkpoint)):
        yield "" if number else "started from", origin
    for trunk in lineage["training"].get("trunks", []):
        yield "went on from", branches.described(trunk)
    if checkpoint.lora:
        yield "trained by", f"{checkpoint.lora}, beside these weights and merged with them"


def _origins(checkpoint: Checkpoint) -> Iterator[str]:
    """The weights that training started from, and what each of their ancestors was trained on."""
    if checkpoint.lineage["recipe"]["training"].get("pretrained"):
        yield _weights(checkpoint.lineage)
    for base in checkpoint.bases:
        how = f", by {base.lora}" if base.lora else ""
        yield f"{base.described}{how}: {_seen(base)}"


def _merged(merged: Mapping[str, Any]) -> str:
    """A checkpoint of a mean, and what it was trained on, where that is not the training of the mean."""
    other = TrainedModel(merged["lineage"]) if "lineage" in merged else None
    of = f", of {other.lineage['recipe']['name']}: {_seen(other)}" if other else ""
    return f"{merged['checkpoint']}, {merged['share']:.1%}, after {merged['tokens']:,} tokens{of}"


def _seen(trained: TrainedModel) -> str:
    return ", ".join(f"{tokens:,} of {name}" for name, tokens in trained.corpus_tokens.items())


def _weights(lineage: Mapping[str, Any]) -> str:
    source, known = lineage["recipe"]["training"]["pretrained"], lineage.get("pretrained", {})
    place = f"{source['repo']} at {source['revision']}" if source["repo"] else source["path"]
    content = known.get("sha256") or lineage["training"].get("pretrained_sha256")
    unknown = "" if "lineage" in known else "; what they were trained on is not recorded"
    return f"the weights {place}{f', sha256 {content}' if content else ''}{unknown}"


def _corpus(checkpoint: Checkpoint, corpus: Mapping[str, Any]) -> Entries:
    """Where a corpus is from, and what was made of it."""
    name, assets = corpus["name"], checkpoint.lineage["assets"]
    source = non_defaults.of_source(corpus["source"])
    yield "  source", ", ".join(_setting(what, value) for what, value in source.items())
    named = {"source": "content", "revision": "revision"}
    inputs = assets[keys.raw(name)].get("inputs", {})
    yield "", ", ".join(f"{named.get(what, what)} {value[:40]}" for what, value in inputs.items())
    for key in map(Key.from_path, assets):
        if key.corpus == name and key.stage != keys.TOKEN_SHARDS:
            yield f"  {key.name or key.stage}", _stage(assets[key])
    if decided := checkpoint.lineage.get("dedup", {}).get(name):
        yield "  dedup", _counts(decided)
    yield "  shards", _stage(assets[keys.token_shards(name)])


def _stage(asset: Mapping[str, Any]) -> str:
    return f"{asset['data_version'][:HASH_SHOWN]}, {asset['code_version']}: {_counts(asset['counts'])}"


def _counts(counts: Mapping[str, int]) -> str:
    """The totals, each followed by its parts in brackets."""
    shown = []
    for name, count in counts.items():
        if "/" not in name:
            parts = [f"{part} {number:,}" for part, number in breakdown(counts, name).items()]
            shown.append(counted(count, name.replace("_", " ")) + (f" ({', '.join(parts)})" if parts else ""))
    return ", ".join(shown)


def _sections(name: str, settings: Any) -> Entries:
    """A section and those inside it, each with its own settings."""
    if not isinstance(settings, dict):
        yield f"  {name}", _value(settings)
        return
    own = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    if own:
        yield f"  {name}", ", ".join(_setting(key, value) for key, value in own.items())
    for key, value in settings.items():
        if key not in own:
            yield from _sections(f"{name}.{key}", value)


def _setting(name: str, value: Any) -> str:
    return f"{name} {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if type(value) is int else json.dumps(value, ensure_ascii=False)


def _sighting(sighting: Sighting, corpus: str) -> dict[str, Any]:
    checkpoint, by = sighting.checkpoint, sighting.by
    raw = by.lineage["assets"][keys.raw(corpus)]
    return {
        "checkpoint": checkpoint.name,
        "path": str(checkpoint.path),
        **({"through": sighting.through} if sighting.through else {}),
        "tokens": by.corpus_tokens[corpus],
        "epochs": round(by.epochs(corpus), 4),
        "raw": raw["data_version"],
        **raw.get("inputs", {}),
    }


def _sightings(sightings: Sequence[Sighting], answer: Sequence[dict[str, Any]], corpus: str) -> Iterator[str]:
    rows = [
        (
            one["checkpoint"],
            f"{one['tokens']:,}",
            f"{one['epochs']:.3f}",
            *(one.get(name, "-")[:HASH_SHOWN] for name in ("raw", "source", "revision")),
        )
        for one in answer
    ]
    heading, *lines = tables.table("checkpoint,tokens,epochs,raw,source,revision", rows)
    yield heading
    for line, one in zip(lines, sightings, strict=True):
        yield line
        if one.through:
            yield f"  through the weights it started from: {one.through}"
    if not sightings:
        yield f"no checkpoint on disk was trained on this version of {corpus}"
    yield "deleted checkpoints are not listed; `python -m pipeline lineage RUN-STEP` shows their lineage"


def _read_by(store: Store, document: str) -> list[Reading]:
    """What read a document."""
    found = list(readings(store, {document}))
    if not any(one.fates or one.steps is None for one in found):
        with suppress(LineageError):  # the store has never read it
            before = list(forgotten_before(to_forget.find(store, [document])))
            if before:
                raise UsageError(f"no checkpoint on disk has read it: {before[0]}")
        raise LineageError(
            f"no checkpoint on disk was trained on a corpus that contains document {document!r}: was it set "
            "aside, or is it in another store?"
        )
    return found


def _document(store: Store, found: Sequence[Reading]) -> Iterator[str]:
    """What read a document, and what forgetting it would delete."""
    yield from read_by(found)
    held = holding(store, partial(among, {name for one in found for name in one.fates}))
    yield from costs(held) if held.versions else ()


def _rows(rows: Sequence[Row], by: str) -> Iterator[str]:
    if by:
        yield f"losses under {by}, in nats a token, the highest first"
    for row in rows:
        loss = "" if row.loss is None else f", loss {row.loss:.3f}"
        yield f"row {row.row}: window {row.window:,} of {row.corpus}{loss}"
        for held in row.documents:
            place = f"tokens {held.begin:,} to {held.end - 1:,} of the corpus"
            yield f"  {held.document} ({tables.called(held.title, held.source)}), {place}"
        yield f"  {tables.quoted(row.text)}"
