"""A checkpoint -> benchmarks/<checkpoint>: how well it answers each benchmark, beside chance."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pipeline.recipe.evaluation import EvaluationParams, EvaluationText
from pipeline.sources.benchmarks.items import Benchmark, Question
from pipeline.sources.benchmarks.source import NamedBenchmark
from pipeline.steps.corpus import evaluation_texts
from pipeline.steps.model.significance import Array
from pipeline.steps.training.launcher import run_trainer
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.fingerprint import fingerprint
from pipeline.store.manifest import File, Part, Version
from pipeline.store.store import Store
from pipeline.store.training_runs import checkpoint_path
from pipeline.store.work import Work
from trainer.config import run_config_of
from trainer.system.durable import read_json
from trainer.system.intervals import Z
from trainer.system.run_history import checkpoint_sha256

VERSION = "benchmarks-4"
LOSES_TEXT = "the tokenizer loses text"  # in place of bits per byte
SOURCES = 10  # fewer are not a sample
Scores = Mapping[str, Any]
LogLikelihoods = list[list[float]]
# What each accuracy divides the log-likelihood of an answer by.
SIZES = {
    "accuracy": lambda text: 1,
    "accuracy_per_character": len,
    "accuracy_per_byte": lambda text: len(text.encode()),
}
ACCURACIES = {
    "accuracy": "accuracy",
    "by character": "accuracy_per_character",
    "by byte": "accuracy_per_byte",
}
EXPLAINED = (
    "Accuracies in percent with their 95% intervals (Wilson); `by character` and `by byte`: the answer that "
    "is likeliest for its length. Bits per byte are those of the right answer, or of an evaluation text. "
    "`texts removed`: whether training text that quotes the benchmark was left out. `cut`: items with a "
    "context that is too long and lost its beginning, or with an answer that was computed in pieces."
)


@dataclass(frozen=True)
class AskedBenchmark:
    """A benchmark, and the `source` in which decontamination looks for its texts. The items of an evaluation
    text are windows without a context, and `clusters` names the cluster of each: items of one source, or of
    one document where the text has few sources, are more alike than others. Of held-out `answers`, the
    cluster is the conversation.
    """

    benchmark: Benchmark
    source: Mapping[str, Any]
    clusters: tuple[str, ...] = ()
    answers: bool = False

    @property
    def name(self) -> str:
        return self.benchmark.name

    @property
    def sha256(self) -> str:
        """The hash of all that decides its scores and their intervals."""
        return (
            fingerprint([self.benchmark.sha256, *self.clusters]) if self.clusters else self.benchmark.sha256
        )

    @cached_property
    def sizes(self) -> Array:
        """The bytes of each cluster; without clusters, 1 for each question."""
        return self._sums(map(_bytes, self.benchmark.items) if self.clusters else repeat(1))

    def bits(self, answers: LogLikelihoods) -> Array:
        """The bits of each cluster; of a question, bits per byte of the right answer."""
        rows = zip(self.benchmark.items, answers, strict=True)
        return self._sums(
            -row[item.gold] / math.log(2) / (1 if self.clusters else _bytes(item)) for item, row in rows
        )

    def wrong(self, answers: LogLikelihoods) -> Array:
        """1 for each question that was answered wrongly, else 0."""
        size, found = SIZES[self.benchmark.metric or "accuracy"], []
        for item, row in zip(self.benchmark.items, answers, strict=True):
            values = [value / size(text) for value, text in zip(row, item.continuations, strict=True)]
            found.append(float(values.index(max(values)) != item.gold))
        return np.array(found)

    def _sums(self, of_items: Iterable[float]) -> Array:
        """A number for each item, added up by cluster; without clusters as it is."""
        values = np.fromiter(of_items, np.float64, len(self.benchmark.items))
        if not self.clusters:
            return values
        return np.bincount(np.unique(self.clusters, return_inverse=True)[1], values).astype(np.float64)


def _bytes(item: Question) -> int:
    """The size of the right answer in UTF-8."""
    return len(item.continuations[item.gold].encode())


def of_recipe(store: Store, evaluation: EvaluationParams) -> list[AskedBenchmark]:
    """Benchmarks and evaluation texts of a recipe. Raises SourceError; StoreError if one is not read yet."""
    return named(evaluation.benchmarks) + [_of_text(store, text) for text in evaluation.texts]


def _of_text(store: Store, text: EvaluationText) -> AskedBenchmark:
    windows = evaluation_texts.scored(store, text.name)
    items = tuple(
        Question(context="", continuations=(window,), gold=0) for window in windows.column("text").to_pylist()
    )
    source = text.source.model_dump(mode="json", by_alias=True)
    many = len(windows.column("source").unique()) >= SOURCES
    clusters = windows.column("source" if many else "document").to_pylist()
    return AskedBenchmark(Benchmark(text.name, items, None), source, tuple(map(str, clusters)))


def named(wanted: Iterable[NamedBenchmark]) -> list[AskedBenchmark]:
    """Raises SourceError."""
    return [
        AskedBenchmark(one.read(), {"kind": "benchmark", **one.model_dump(mode="json")}) for one in wanted
    ]


def benchmark_checkpoint(store: Store, name: str, asked: Sequence[AskedBenchmark]) -> Version:
    """Lets a checkpoint answer benchmarks. Each is a part, so that one more computes no other again. Raises
    CheckpointGoneError and PipelineError.
    """
    checkpoint = checkpoint_path(store, name)
    weights = checkpoint_sha256(checkpoint)
    inputs = {"checkpoint": weights, **{one.name: one.sha256 for one in asked}}
    with store.making(Work(keys.benchmarks(name), VERSION, {}, inputs)) as draft:
        if isinstance(draft, Version):
            return draft
        made_from = {one.name: fingerprint([VERSION, weights, one.sha256]) for one in asked}
        parts = {one.name: draft.finished(one.name, made_from[one.name]) for one in asked}
        missing = [one for one in asked if parts[one.name] is None]
        if unanswered := [one.benchmark for one in missing if not _raw(draft.path, one.benchmark).exists()]:
            precision = run_config_of(checkpoint).training.precision
            _ask(checkpoint, unanswered, f"--precision={precision}", f"--output={draft.path}")
        removed = _removed_sets(checkpoint)
        for one in missing:
            scores = _scored(draft.path, one, removed)
            parts[one.name] = _part(draft, one.benchmark, made_from[one.name], scores)
        return draft.publish([part for part in parts.values() if part is not None])


def _raw(directory: Path, benchmark: Benchmark) -> Path:
    """The file in which the trainer writes scores. It may be left from a trainer that was killed."""
    return directory / f"{benchmark.name}.json"


def _scored(directory: Path, asked: AskedBenchmark, removed: Sequence[Any] | None) -> dict[str, Any]:
    """The scores in a directory, and what is said beside them. `removed` is that of `_removed_sets`."""
    scores: dict[str, Any] = read_json(_raw(directory, asked.benchmark))
    if asked.clusters and "not_given_back" not in scores:
        answers = _rows((directory / f"{asked.name}.log_likelihoods.jsonl").read_text())
        scores |= {"bits_per_byte": by_cluster(asked, answers)}
    if asked.clusters:
        scores |= {"cut": 0}
    texts_removed = None if removed is None else asked.source in removed
    return scores | {"metric": asked.benchmark.metric, "texts_removed": texts_removed}


def _part(draft: Draft, benchmark: Benchmark, made_from: str, scores: dict[str, Any]) -> Part:
    answers = draft.path / f"{benchmark.name}.log_likelihoods.jsonl"
    files = {
        "scores": draft.write(f"{benchmark.name}.scores.json", json.dumps(scores, indent=1)),
        "log_likelihoods": File.of(answers, draft.path),
    }
    part = Part(benchmark.name, made_from, files, {"items": scores["items"]})
    draft.put(part)
    return part


def _ask(model: Path, benchmarks: Iterable[Benchmark], *options: str) -> None:
    with TemporaryDirectory() as directory:
        items = [Path(directory) / f"{one.name}.jsonl" for one in benchmarks]
        for path, one in zip(items, benchmarks, strict=True):
            path.write_text(one.lines, encoding="utf-8")
        run_trainer("benchmark", *map(str, items), f"--model={model}", *options)


def _rows(lines: str) -> LogLikelihoods:
    return [json.loads(line)["log_likelihoods"] for line in lines.splitlines()]


def log_likelihoods(store: Store, checkpoint: str, asked: AskedBenchmark) -> LogLikelihoods | None:
    """The log-likelihoods of the last answers of a checkpoint, by item. None if it has not answered."""
    found = _last_answers(store, checkpoint, asked, "log_likelihoods")
    return None if found is None else _rows(found)


def not_given_back(store: Store, checkpoint: str, asked: AskedBenchmark) -> float:
    """The share of a text that the tokenizer of a checkpoint does not give back, as it answered last."""
    found = _last_answers(store, checkpoint, asked, "scores")
    return 0.0 if found is None else json.loads(found).get("not_given_back", 0.0)


def _last_answers(store: Store, checkpoint: str, asked: AskedBenchmark, table: str) -> str | None:
    title = asked.name
    for version in store.newest_first(keys.benchmarks(checkpoint)):
        made = version.manifest
        if made["code_version"] == VERSION and made["inputs"].get(title) == asked.sha256:
            part = next(part for part in version.parts if part.name == title)
            return version.file(part, table).read_text()
    return None


def by_cluster(asked: AskedBenchmark, answers: LogLikelihoods) -> dict[str, float]:
    """Bits per byte of all windows of an evaluation text together, with an interval of 95% over clusters of
    windows: the ratio estimator (Cochran 1977, section 6.13).
    """
    bits, size = asked.bits(answers), asked.sizes
    value = float(bits.sum() / size.sum())
    spread = 0.0
    if len(bits) > 1:
        squares = float(((bits - value * size) ** 2).sum())
        spread = Z * math.sqrt(squares * len(bits) / (len(bits) - 1)) / float(size.sum())
    return {"value": value, "low": value - spread, "high": value + spread}


def _removed_sets(model: Path) -> list[dict[str, Any]] | None:
    """As `removed_sets`; None for a model without a lineage."""
    path = model / "lineage.json"
    return removed_sets(read_json(path)) if path.is_file() else None


def answered(
    model: Path, asked: Sequence[AskedBenchmark], precision: str, *options: str
) -> dict[str, Scores]:
    """The scores of any model by benchmark. Nothing is stored. Raises PipelineError."""
    removed = _removed_sets(model)
    with TemporaryDirectory() as output:
        benchmarks = [one.benchmark for one in asked]
        _ask(model, benchmarks, f"--precision={precision}", f"--output={output}", *options)
        return {one.name: _scored(Path(output), one, removed) for one in asked}


def removed_sets(lineage: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sources whose texts were searched for in the training text of a model, and removed."""
    section = lineage["recipe"].get("decontamination") or {}
    return [one["source"] for one in section["sets"]] if section.get("action") == "remove" else []


def read(version: Version) -> dict[str, Scores]:
    """The scores of each benchmark, by name."""
    return {part.name: read_json(version.file(part, "scores")) for part in version.parts}


def above_chance(scores: Scores) -> bool:
    """Whether the interval of the accuracy that counts lies above chance."""
    metric = scores["metric"]
    return bool(metric and scores[metric] and scores[metric]["low"] > scores["chance"])


def verdict(by_benchmark: Mapping[str, Scores]) -> tuple[bool, str]:
    """Whether a model beats chance on a benchmark with wrong answers, and the sentence that says so."""
    comparable = {name: scores for name, scores in by_benchmark.items() if scores["chance"] is not None}
    better = [name for name, scores in comparable.items() if above_chance(scores)]
    if not comparable:
        texts = ((name, scores) for name, scores in by_benchmark.items() if not scores["metric"])
        known = {name: scores["bits_per_byte"] for name, scores in texts}
        if not known:
            return True, "What chance would score is not known."
        bits = (
            f"{name} {one['value']:.3f}" if one else f"{name} {LOSES_TEXT}" for name, one in known.items()
        )
        return True, f"Bits per byte: {', '.join(bits)}."
    if not better:
        return False, "No better than chance yet."
    among = "" if len(better) == len(comparable) else f", not on the other {len(comparable) - len(better)}"
    return True, f"Better than chance on {', '.join(better)}{among}."


def table(by_benchmark: Mapping[str, Scores], marked: str = "{}*") -> list[dict[str, str]]:
    """A row for each benchmark. The accuracy that is compared with chance is `marked`."""
    return [_row(name, scores, marked) for name, scores in by_benchmark.items()]


def shown(accuracy: Mapping[str, float] | None) -> str:
    """An accuracy in percent with its interval."""
    if not accuracy:
        return "-"
    value, low, high = (100 * accuracy[name] for name in ("value", "low", "high"))
    return f"{value:.1f} ({low:.1f}-{high:.1f})"


def _row(name: str, scores: Scores, marked: str) -> dict[str, str]:
    bits, chance, removed = scores["bits_per_byte"], scores["chance"], scores["texts_removed"]
    cut = f" ({scores['cut']:,} cut)" if scores["cut"] else ""
    no_bits = LOSES_TEXT if "not_given_back" in scores else "-"
    row = {"benchmark": name, "items": f"{scores['items']:,}{cut}"}
    for title, metric in ACCURACIES.items():
        text = shown(scores[metric])
        row[title] = marked.format(text) if scores[metric] and metric == scores["metric"] else text
    return row | {
        "chance": "-" if chance is None else f"{100 * chance:.1f}",
        "bits per byte": "{value:.3f} ({low:.3f}-{high:.3f})".format(**bits) if bits else no_bits,
        "texts removed": "unknown" if removed is None else "yes" if removed else "NO",
    }
