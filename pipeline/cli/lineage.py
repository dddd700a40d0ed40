"""lineage: shows what a checkpoint was made from, or which checkpoints saw a corpus or a document."""

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.cli import lineage_sightings as sightings
from pipeline.cli.variant_option import last_checkpoint
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.store import default_store

if TYPE_CHECKING:
    from pipeline.steps.lineage.checkpoints import Checkpoint

LABEL = 13  # characters of the labels on the left


class QuestionError(PipelineError):
    """These options of `lineage` do not go together."""


HELP = "Show what a checkpoint was made from, or which checkpoints were trained on a corpus or a document."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", help="its directory, or its name in the UI: RUN-STEP"
    )
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
        "--variant", metavar="V", help="the last checkpoint of a variant of the recipe, or of `base`"
    )
    parser.add_argument("--json", action="store_true", help="print everything, defaults too, as JSON")


def run(options: argparse.Namespace) -> None:
    asked = [options.checkpoint, options.variant, options.corpus, options.document]
    if len(asked) - asked.count(None) != 1:
        raise QuestionError("lineage: give one of CHECKPOINT, --variant, --corpus and --document")
    if options.version and not options.corpus:
        raise QuestionError("--version: name the corpus with --corpus, too")
    from pipeline.recipe.recipe import stored_at
    from pipeline.steps.lineage import checkpoints

    store, width = default_store(stored_at()), shutil.get_terminal_size().columns
    lines: Iterable[str]
    if options.checkpoint or options.variant:
        named = checkpoints.checkpoint(store, options.checkpoint or last_checkpoint(options))
        answer: Any = {
            "checkpoint": named.name,
            "path": str(named.path),
            "saved": named.saved,
            **named.lineage,
        }
        lines = described(named, width)
    elif options.corpus:
        trained = checkpoints.that_saw(store, options.corpus, options.version)
        answer = [sightings.corpus_row(sighting, options.corpus) for sighting in trained]
        lines = sightings.corpus_lines(trained, options.corpus)
    else:
        from pipeline.steps.lineage.documents import seen

        answers, unknown = seen(store, options.document)
        answer = [*map(sightings.document_row, answers), *map(sightings.untraceable_row, unknown)]
        lines = sightings.document_lines(answers, unknown, width)
    print(json.dumps(answer, indent=1, ensure_ascii=False) if options.json else "\n".join(lines))


def described(checkpoint: "Checkpoint", width: int = 100) -> Iterator[str]:
    """A checkpoint's lineage as text, in lines of `width` characters: of the settings, those that differ from
    the defaults.
    """
    from pipeline.recipe import differences

    def entry(label: str, text: str) -> str:
        return _entry(label, text, width)

    lineage = checkpoint.lineage
    recipe, assets = lineage["recipe"], lineage["assets"]
    yield entry("checkpoint", f"{checkpoint.name}, after {checkpoint.tokens:,} tokens")
    deleted = "" if checkpoint.saved else ", deleted since then; the lineage is from the record of its run"
    yield entry("path", f"{checkpoint.path}{deleted}")
    variant = f", variant {lineage['variant']}" if "variant" in lineage else ""
    yield entry("recipe", f"{recipe['name']}{variant}")
    yield entry("code", _code(lineage["git_commit"]))
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(checkpoint.libraries.items()))
    yield entry("libraries", libraries or "unknown, the step was deleted")
    if recipe["training"].get("pretrained"):
        yield entry("started from", _weights(lineage))
    for ancestor in checkpoint.ancestors:
        seen = ", ".join(f"{tokens:,} of {name}" for name, tokens in ancestor.corpus_tokens.items())
        yield entry("", f"{ancestor.described}: {seen}")
    for corpus in recipe["corpora"]:
        yield ""
        yield from _corpus(checkpoint, corpus, differences.of_source(corpus["source"]), width)
    yield ""
    yield "all corpora"
    for key in (keys.DEDUP, keys.TOKENIZER):
        yield entry(f"  {key}", _stage(assets[key]))
    yield ""
    yield "settings that differ from the defaults (--json has all)"
    for name, settings in differences.of_recipe(recipe).items():
        yield from (entry(f"  {label}", text) for label, text in _sections(name, settings))


def _entry(label: str, text: str, width: int) -> str:
    """A label, and the text beside it, or on lines of its own if the label is long."""
    lines = textwrap.wrap(text, max(width - LABEL, 40), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]
    first = [f"{label:<{LABEL - 1}} {lines.pop(0)}"] if len(label) < LABEL else [label]
    return "\n".join([*first, *(" " * LABEL + line for line in lines)])


def _code(commit: str | None) -> str:
    if commit is None:
        return "unknown, not a git checkout"
    changed = ", with uncommitted changes" if commit.endswith("-dirty") else ""
    return f"commit {commit.removesuffix('-dirty')}{changed}"


def _weights(lineage: Mapping[str, Any]) -> str:
    source, known = lineage["recipe"]["training"]["pretrained"], lineage.get("pretrained", {})
    place = f"{source['repo']} at {source['revision']}" if source["repo"] else source["path"]
    content = known.get("sha256") or lineage["training"].get("pretrained_sha256")
    unknown = "" if "lineage" in known else "; what they were trained on is not recorded"
    return f"the weights {place}{f', sha256 {content}' if content else ''}{unknown}"


def _corpus(
    checkpoint: "Checkpoint", corpus: Mapping[str, Any], source: Mapping[str, Any], width: int
) -> Iterator[str]:
    name, assets = corpus["name"], checkpoint.lineage["assets"]
    inputs = assets[keys.raw(name)].get("inputs", {})
    tokens, epochs = checkpoint.corpus_tokens.get(name, 0), checkpoint.epochs(name)
    yield f"corpus {name}: {tokens:,} tokens trained on by then, {epochs:.3f} epochs"
    yield _entry("  source", ", ".join(_setting(what, value) for what, value in source.items()), width)
    named = {"source": "content", "revision": "revision"}
    found = ", ".join(f"{named.get(what, what)} {value[:40]}" for what, value in inputs.items())
    yield _entry("", found, width)
    for key in assets:
        if key.startswith(keys.of_corpus(name, "")):
            yield _entry(f"  {key.rpartition('/')[2]}", _stage(assets[key]), width)
    decided = checkpoint.lineage.get("dedup", {}).get(name)
    if decided:
        yield _entry("  dedup", _counts(decided), width)
    yield _entry("  shards", _stage(assets[keys.token_shards(name)]), width)


def _stage(asset: Mapping[str, Any]) -> str:
    version = asset["data_version"][: sightings.SHOWN]
    return f"{version}, {asset['code_version']}: {_counts(asset['counts'])}"


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


def _sections(name: str, settings: Any) -> Iterator[tuple[str, str]]:
    """A section and those inside it, each with its own settings."""
    if not isinstance(settings, dict):
        yield name, _value(settings)
        return
    own = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    if own:
        yield name, ", ".join(_setting(key, value) for key, value in own.items())
    for key, value in settings.items():
        if key not in own:
            yield from _sections(f"{name}.{key}", value)


def _setting(name: str, value: Any) -> str:
    return f"{name} {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if type(value) is int else json.dumps(value, ensure_ascii=False)
