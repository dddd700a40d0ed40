"""A checkpoint -> benchmarks/<checkpoint>: how well it answers each benchmark, beside chance."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.sources.benchmarks.items import Benchmark
from pipeline.sources.benchmarks.source import NamedBenchmark
from pipeline.steps.training.launcher import run_trainer
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.fingerprint import file_sha256, fingerprint
from pipeline.store.manifest import File, Part, Version
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_path
from pipeline.store.work import Work
from trainer.config import load_run_config
from trainer.system.durable import write_atomically

VERSION = "benchmarks-2"
Scores = Mapping[str, Any]
ACCURACIES = {
    "accuracy": "accuracy",
    "by character": "accuracy_per_character",
    "by byte": "accuracy_per_byte",
}
EXPLAINED = (
    "Accuracies in percent with their 95% intervals (Wilson); `by character` and `by byte`: the answer that "
    "is likeliest for its length. Bits per byte are those of the right answer. `texts removed`: whether "
    "training text that quotes the benchmark was left out. `cut`: items with a context that is too long and "
    "lost its beginning."
)


def benchmark_checkpoint(store: Store, name: str, wanted: Sequence[NamedBenchmark]) -> Version:
    """Lets a checkpoint answer benchmarks. Each is a part, so that one more computes no other again.

    Raises CheckpointGoneError, SourceError and TrainerCommandError.
    """
    checkpoint, benchmarks = checkpoint_path(store, name), [one.read() for one in wanted]
    weights = file_sha256(checkpoint / "manifest.json")
    made_from = {"checkpoint": weights, **{one.name: one.sha256 for one in benchmarks}}
    with store.making(Work(keys.benchmarks(name), VERSION, {}, made_from)) as draft:
        if isinstance(draft, Version):
            return draft
        fingerprints = {one.name: fingerprint([VERSION, weights, one.sha256]) for one in benchmarks}
        parts = {one.name: draft.finished(one.name, fingerprints[one.name]) for one in benchmarks}
        missing = [one for one in benchmarks if parts[one.name] is None]
        if unanswered := [one for one in missing if not _raw(draft, one).exists()]:
            precision = load_run_config(checkpoint.parents[1] / "config.yaml").training.precision
            _ask(str(checkpoint), unanswered, f"--precision={precision}", f"--output={draft.path}")
        facts = _facts(wanted, benchmarks, checkpoint)
        for one in missing:
            scores = json.loads(_raw(draft, one).read_text(encoding="utf-8")) | facts[one.name]
            parts[one.name] = _part(draft, one, fingerprints[one.name], scores)
        return draft.publish([part for part in parts.values() if part is not None])


def _raw(draft: Draft, benchmark: Benchmark) -> Path:
    """What the trainer wrote, perhaps before it was killed."""
    return draft.path / f"{benchmark.name}.json"


def _part(draft: Draft, benchmark: Benchmark, made_from: str, scores: dict[str, Any]) -> Part:
    path = draft.path / f"{benchmark.name}.scores.json"
    write_atomically(path, json.dumps(scores, indent=1))
    written = {"scores": path, "log_likelihoods": draft.path / f"{benchmark.name}.log_likelihoods.jsonl"}
    files = {table: File.of(path, draft.path) for table, path in written.items()}
    part = Part(benchmark.name, made_from, files, {"items": scores["items"]})
    draft.keep(part)
    return part


def _ask(model: str, benchmarks: Iterable[Benchmark], *options: str) -> str:
    """What `python -m trainer benchmark` prints."""
    with TemporaryDirectory() as directory:
        items = [Path(directory) / f"{one.name}.jsonl" for one in benchmarks]
        for path, one in zip(items, benchmarks, strict=True):
            path.write_text(one.lines, encoding="utf-8")
        return run_trainer("benchmark", model, *map(str, items), *options)


def _facts(
    wanted: Sequence[NamedBenchmark], benchmarks: Iterable[Benchmark], model: Path
) -> dict[str, dict[str, Any]]:
    """What is said of each benchmark beside its scores. `texts_removed` is None without a lineage."""
    path = model / "lineage.json"
    removed = removed_sets(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
    sources = {one.title: one.model_dump(mode="json") for one in wanted}
    return {
        one.name: {
            "metric": one.metric,
            "texts_removed": None if removed is None else sources[one.name] in removed,
        }
        for one in benchmarks
    }


def answered(model: str, wanted: Sequence[NamedBenchmark], precision: str) -> dict[str, Scores]:
    """The scores of any model by benchmark: a directory, or a name as the trainer's commands take. Nothing is
    stored. Raises SourceError and TrainerCommandError.
    """
    benchmarks = [one.read() for one in wanted]
    said = _ask(model, benchmarks, f"--precision={precision}")
    facts = _facts(wanted, benchmarks, Path(model))
    found = {scores.pop("benchmark"): scores for scores in map(json.loads, said.splitlines())}
    return {name: scores | facts[name] for name, scores in found.items()}


def removed_sets(lineage: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The benchmarks whose texts were searched for in the training text of a model, and removed."""
    section = lineage["recipe"].get("decontamination") or {}
    if section.get("action") != "remove":
        return []
    sources = [one["source"] for one in section["sets"]]
    return [
        {key: value for key, value in source.items() if key != "kind"}
        for source in sources
        if source["kind"] == "benchmark"
    ]


def read(version: Version) -> dict[str, Scores]:
    """The scores of each benchmark, by name."""
    return {part.name: json.loads(version.file(part, "scores").read_text()) for part in version.parts}


def above_chance(scores: Scores) -> bool:
    """Whether the interval of the accuracy that counts lies above chance."""
    metric = scores["metric"]
    return bool(metric and scores[metric] and scores[metric]["low"] > scores["chance"])


def verdict(found: Mapping[str, Scores]) -> tuple[bool, str]:
    """Whether a model is better than chance on any benchmark, and the sentence that says so."""
    comparable = {name: scores for name, scores in found.items() if scores["chance"] is not None}
    better = [name for name, scores in comparable.items() if above_chance(scores)]
    if not comparable:
        return True, "None of these has wrong answers to choose: there is no chance to compare with."
    if not better:
        return False, "No better than chance yet."
    among = "" if len(better) == len(comparable) else f", not on the other {len(comparable) - len(better)}"
    return True, f"Better than chance on {', '.join(better)}{among}."


def table(found: Mapping[str, Scores], marked: str = "{}*") -> list[dict[str, str]]:
    """A row for each benchmark. The accuracy that is compared with chance is `marked`."""
    return [_row(name, scores, marked) for name, scores in found.items()]


def shown(accuracy: Mapping[str, float] | None) -> str:
    """An accuracy in percent with its interval."""
    if not accuracy:
        return "-"
    value, low, high = (100 * accuracy[name] for name in ("value", "low", "high"))
    return f"{value:.1f} ({low:.1f}-{high:.1f})"


def _row(name: str, scores: Scores, marked: str) -> dict[str, str]:
    bits, chance, removed = scores["bits_per_byte"], scores["chance"], scores["texts_removed"]
    counted = {"{:,} cut": scores["cut"], "and {:,} too long": scores["too_long"]}
    notes = ", ".join(note.format(count) for note, count in counted.items() if count)
    row = {"benchmark": name, "items": f"{scores['items']:,}{notes and f' ({notes})'}"}
    for title, metric in ACCURACIES.items():
        text = shown(scores[metric])
        row[title] = marked.format(text) if scores[metric] and metric == scores["metric"] else text
    return row | {
        "chance": "-" if chance is None else f"{100 * chance:.1f}",
        "bits per byte": f"{bits['value']:.3f}" if bits else "-",
        "texts removed": "unknown" if removed is None else "yes" if removed else "NO",
    }
