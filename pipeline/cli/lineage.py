"""lineage: shows what a checkpoint was made from, or which checkpoints saw a corpus or a document."""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.versions import default_store

if TYPE_CHECKING:
    from pipeline.steps.lineage.checkpoints import Checkpoint
    from pipeline.steps.lineage.documents import Seen

PARAMETERS = (
    "transforms",
    "scrub",
    "quality",
    "dedup",
    "decontamination",
    "tokenizer",
    "shards",
    "mixture",
    "training",
)
SHOWN = 12  # characters of a version


class QuestionError(PipelineError):
    """These options of `lineage` do not go together."""


HELP = "Show what a checkpoint was made from, or which checkpoints were trained on a corpus or a document."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", help="its directory, or its name in the UI: RUN-STEP"
    )
    parser.add_argument(
        "--corpus", metavar="C", help="list the checkpoints on disk that were trained on this corpus"
    )
    parser.add_argument(
        "--version",
        metavar="V",
        help="with --corpus: only this data version of one of its stages, or this revision of its source",
    )
    parser.add_argument(
        "--document",
        metavar="ID",
        help="show what happened to this document, and list the checkpoints that were trained on it",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(options: argparse.Namespace) -> None:
    asked = [options.checkpoint, options.corpus, options.document]
    if len(asked) - asked.count(None) != 1:
        raise QuestionError("lineage: give one of CHECKPOINT, --corpus and --document")
    if options.version and not options.corpus:
        raise QuestionError("--version: name the corpus with --corpus, too")
    from pipeline.steps.lineage import checkpoints

    store = default_store()
    if options.checkpoint:
        named = checkpoints.checkpoint(store, options.checkpoint)
        answer: Any = {
            "checkpoint": named.name,
            "path": str(named.path),
            "saved": named.saved,
            **named.lineage,
        }
        lines = described(named)
    elif options.corpus:
        trained = checkpoints.that_saw(store, options.corpus, options.version)
        answer = [_of_corpus(checkpoint, options.corpus) for checkpoint in trained]
        lines = _saw_corpus(trained, options.corpus)
    else:
        from pipeline.steps.lineage.documents import seen

        answers = seen(store, options.document)
        answer = [_of_document(seen_by) for seen_by in answers]
        lines = _saw_document(answers, options.document)
    print(json.dumps(answer, indent=1, ensure_ascii=False) if options.json else "\n".join(lines))


def described(checkpoint: "Checkpoint") -> Iterator[str]:
    """A checkpoint's lineage as text."""
    lineage = checkpoint.lineage
    recipe, assets = lineage["recipe"], lineage["assets"]
    yield f"checkpoint   {checkpoint.name}, after {checkpoint.tokens:,} tokens"
    deleted = "" if checkpoint.saved else ", deleted since then; the lineage is from the record of its run"
    yield f"path         {checkpoint.path}{deleted}"
    yield f"recipe       {recipe['name']}"
    yield f"code         {_code(lineage['git_commit'])}"
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(checkpoint.libraries.items()))
    yield f"libraries    {libraries or 'unknown, the step was deleted'}"
    yield ""
    for corpus in recipe["corpora"]:
        yield from _corpus(checkpoint, corpus)
    yield _stage("dedup", assets[keys.DEDUP])
    yield _stage("tokenizer", assets[keys.TOKENIZER])
    yield ""
    yield from (
        f"{name:<16} {json.dumps(recipe[name])}" for name in PARAMETERS if recipe.get(name) is not None
    )


def _code(commit: str | None) -> str:
    if commit is None:
        return "unknown, not a git checkout"
    changed = ", with uncommitted changes" if commit.endswith("-dirty") else ""
    return f"commit {commit.removesuffix('-dirty')}{changed}"


def _corpus(checkpoint: "Checkpoint", corpus: Mapping[str, Any]) -> Iterator[str]:
    name, assets = corpus["name"], checkpoint.lineage["assets"]
    inputs = assets[keys.raw(name)].get("inputs", {})
    tokens, epochs = checkpoint.corpus_tokens.get(name, 0), checkpoint.epochs(name)
    yield f"corpus {name}: {tokens:,} tokens trained on by then, {epochs:.3f} epochs"
    yield f"  {json.dumps(corpus['source'])}"
    yield f"  {', '.join(f'{what} {value[:40]}' for what, value in inputs.items())}"
    for stage in ("raw", "transformed", "scrubbed", "quality", "contamination"):
        if keys.of_corpus(name, stage) in assets:
            yield _stage(f"  {stage}", assets[keys.of_corpus(name, stage)])
    for key in assets:
        if key.startswith(keys.filtered(name, "")):
            yield _stage(f"  {key.rpartition('/')[2]}", assets[key])
    decided = checkpoint.lineage.get("dedup", {}).get(name)
    if decided:
        yield f"  {'dedup':<16} {_counts(decided)}"
    yield _stage("  shards", assets[keys.token_shards(name)])
    yield ""


def _stage(name: str, asset: Mapping[str, Any]) -> str:
    return f"{name:<18} {asset['data_version'][:SHOWN]}  {asset['code_version']}  {_counts(asset['counts'])}"


def _counts(counts: Mapping[str, int]) -> str:
    """The totals, each followed by its parts in brackets."""
    shown = []
    for name, count in counts.items():
        if "/" not in name:
            parts = [
                f"{part.partition('/')[2]} {number:,}"
                for part, number in counts.items()
                if part.startswith(f"{name}/")
            ]
            shown.append(f"{count:,} {name.replace('_', ' ')}" + (f" ({', '.join(parts)})" if parts else ""))
    return ", ".join(shown)


def _of_corpus(checkpoint: "Checkpoint", corpus: str) -> dict[str, Any]:
    raw = checkpoint.lineage["assets"][keys.raw(corpus)]
    return {
        "checkpoint": checkpoint.name,
        "path": str(checkpoint.path),
        "tokens": checkpoint.corpus_tokens[corpus],
        "epochs": round(checkpoint.epochs(corpus), 4),
        "raw": raw["data_version"],
        **raw.get("inputs", {}),
    }


def _saw_corpus(trained: "list[Checkpoint]", corpus: str) -> Iterator[str]:
    yield f"{'checkpoint':<20}{'tokens':>16}{'epochs':>9}  {'raw':<14}{'source':<14}revision"
    for checkpoint in trained:
        row = _of_corpus(checkpoint, corpus)
        yield (
            f"{checkpoint.name:<20}{row['tokens']:>16,}{row['epochs']:>9.3f}  "
            f"{row['raw'][:SHOWN]:<14}{row.get('source', '?')[:SHOWN]:<14}"
            f"{row.get('revision', '-')[:SHOWN]}"
        )
    if not trained:
        yield f"no checkpoint on disk was trained on this version of {corpus}"
    yield "deleted checkpoints are not listed; `python -m pipeline lineage RUN-STEP` shows their lineage"


def _of_document(seen_by: "Seen") -> dict[str, Any]:
    place: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(seen_by.place).items()
    }
    return {
        "checkpoint": seen_by.checkpoint.name,
        **place,
        "windows": seen_by.windows,
        "windows_seen": seen_by.seen,
        "times": seen_by.times,
    }


def _saw_document(answers: "list[Seen]", document: str) -> Iterator[str]:
    place = None
    for answer in answers:
        if answer.place != place:
            place = answer.place
            where = place.rejected or (
                f"document {place.number} of {place.shard}, tokens {place.begin:,} to "
                f"{place.end - 1:,} of the corpus ({place.split})"
            )
            yield f"{document} of corpus {place.corpus}: {where}"
        if answer.place.rejected:
            use = "not trained on"
        elif answer.windows:
            use = (
                f"trained on {answer.seen:,} of the {answer.windows:,} windows that contain part of it, "
                f"{answer.times:,} times in total"
            )
        else:
            use = "held out for validation, not trained on"
        yield f"  {answer.checkpoint.name}  {use}"
