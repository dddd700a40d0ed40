"""lineage: what a checkpoint was made from, and which checkpoints were trained on a corpus or a document."""

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
SHOWN = 12  # digits of a version


class QuestionError(PipelineError):
    """Options of `lineage` that do not go together."""


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
        help="with --corpus: only at this data version of a stage, or this revision of its source",
    )
    parser.add_argument(
        "--document",
        metavar="ID",
        help="show what became of this document, and list the checkpoints that were trained on it",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(options: argparse.Namespace) -> None:
    asked = [options.checkpoint, options.corpus, options.document]
    if len(asked) - asked.count(None) != 1:
        raise QuestionError("lineage answers one question: name a CHECKPOINT, or --corpus, or --document")
    if options.version and not options.corpus:
        raise QuestionError("--version says which version of --corpus is meant")
    from pipeline.steps.lineage import checkpoints

    store = default_store()
    if options.checkpoint:
        one = checkpoints.checkpoint(store, options.checkpoint)
        answer: Any = {"checkpoint": one.name, "path": str(one.path), "saved": one.saved, **one.lineage}
        lines = described(one)
    elif options.corpus:
        found = checkpoints.that_saw(store, options.corpus, options.version)
        answer = [_of_corpus(one, options.corpus) for one in found]
        lines = _saw_corpus(found, options.corpus)
    else:
        from pipeline.steps.lineage.documents import seen

        answers = seen(store, options.document)
        answer = [_of_document(one) for one in answers]
        lines = _saw_document(answers, options.document)
    print(json.dumps(answer, indent=1, ensure_ascii=False) if options.json else "\n".join(lines))


def described(one: "Checkpoint") -> Iterator[str]:
    """A checkpoint's lineage as text."""
    lineage = one.lineage
    recipe, assets = lineage["recipe"], lineage["assets"]
    yield f"checkpoint   {one.name}, after {one.tokens:,} tokens"
    yield f"path         {one.path}" + (
        "" if one.saved else ", which was deleted since: this is what the run's own record says"
    )
    yield f"recipe       {recipe['name']}"
    yield f"code         {_code(lineage['git_commit'])}"
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(one.libraries.items()))
    yield f"libraries    {libraries or 'not known of a deleted step'}"
    yield ""
    for corpus in recipe["corpora"]:
        yield from _corpus(one, corpus)
    yield _stage("dedup", assets[keys.DEDUP])
    yield _stage("tokenizer", assets[keys.TOKENIZER])
    yield ""
    yield from (
        f"{name:<16} {json.dumps(recipe[name])}" for name in PARAMETERS if recipe.get(name) is not None
    )


def _code(commit: str | None) -> str:
    if commit is None:
        return "not in a git checkout"
    return f"commit {commit.removesuffix('-dirty')}" + (
        ", with changes that were not committed" if commit.endswith("-dirty") else ""
    )


def _corpus(one: "Checkpoint", corpus: Mapping[str, Any]) -> Iterator[str]:
    name, assets = corpus["name"], one.lineage["assets"]
    source = assets[keys.raw(name)].get("inputs", {})
    at = ", ".join(f"{what} {value[:40]}" for what, value in source.items())
    yield (
        f"corpus {name}: {one.corpus_tokens.get(name, 0):,} tokens trained on until then, "
        f"{one.epochs(name):.3f} epochs"
    )
    yield f"  {json.dumps(corpus['source'])}"
    yield f"  {at}"
    for stage in ("raw", "transformed", "scrubbed", "quality", "contamination"):
        if keys.of_corpus(name, stage) in assets:
            yield _stage(f"  {stage}", assets[keys.of_corpus(name, stage)])
    for key in assets:
        if key.startswith(keys.filtered(name, "")):
            yield _stage(f"  {key.rpartition('/')[2]}", assets[key])
    decided = one.lineage.get("dedup", {}).get(name)
    if decided:
        yield f"  {'dedup':<16} {_counts(decided)}"
    yield _stage("  shards", assets[keys.token_shards(name)])
    yield ""


def _stage(what: str, asset: Mapping[str, Any]) -> str:
    return f"{what:<18} {asset['data_version'][:SHOWN]}  {asset['code_version']}  {_counts(asset['counts'])}"


def _counts(counts: Mapping[str, int]) -> str:
    """Counts, each followed by what it is made up of."""
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


def _of_corpus(one: "Checkpoint", corpus: str) -> dict[str, Any]:
    raw = one.lineage["assets"][keys.raw(corpus)]
    versions = {"raw": raw["data_version"], **raw.get("inputs", {})}
    return {
        "checkpoint": one.name,
        "path": str(one.path),
        "tokens": one.corpus_tokens[corpus],
        "epochs": round(one.epochs(corpus), 4),
        **versions,
    }


def _saw_corpus(found: "list[Checkpoint]", corpus: str) -> Iterator[str]:
    yield f"{'checkpoint':<20}{'tokens of it':>16}{'epochs':>9}  {'raw':<14}{'source':<14}revision"
    for one in found:
        row = _of_corpus(one, corpus)
        yield (
            f"{one.name:<20}{row['tokens']:>16,}{row['epochs']:>9.3f}  "
            f"{row['raw'][:SHOWN]:<14}{row.get('source', '?')[:SHOWN]:<14}"
            f"{row.get('revision', '-')[:SHOWN]}"
        )
    if not found:
        yield f"no checkpoint on disk was trained on {corpus} at this version"
    yield (
        "of a step that was deleted, `python -m pipeline lineage RUN-STEP` still says what it was trained on"
    )


def _of_document(one: "Seen") -> dict[str, Any]:
    place: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(one.place).items()
    }
    return {
        "checkpoint": one.checkpoint.name,
        **place,
        "windows": one.windows,
        "windows_seen": one.seen,
        "times": one.times,
    }


def _saw_document(answers: "list[Seen]", document: str) -> Iterator[str]:
    place = None
    for one in answers:
        if one.place != place:
            place = one.place
            if place.rejected:
                where = place.rejected
            else:
                where = (
                    f"document {place.number} of {place.shard}, tokens {place.begin:,} to "
                    f"{place.end - 1:,} of the corpus ({place.split})"
                )
            yield f"{document} of corpus {place.corpus}: {where}"
        if one.place.rejected:
            said = "not trained on"
        elif one.windows:
            said = (
                f"trained on {one.seen:,} of the {one.windows:,} windows that hold some of it, "
                f"{one.times:,} times in all"
            )
        else:
            said = "held out for validation, not trained on"
        yield f"  {one.checkpoint.name}  {said}"
