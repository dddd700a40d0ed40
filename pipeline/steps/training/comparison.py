"""The variants of a recipe side by side: in which settings they differ, and what came of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.recipe.overrides import leaves
from pipeline.recipe.recipe import BASE, Recipe
from pipeline.steps.model import evaluate
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.training import duration, plan
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.training_runs import RUNS
from pipeline.store.versions import Store, StoreError
from trainer.system.durable import read_json_lines


@dataclass(frozen=True)
class Curve:
    """The course of a training: at each logged step the tokens so far, the seconds in steps so far and the
    loss, and at each validation the tokens and the loss.
    """

    tokens: list[int]
    seconds: list[float]
    losses: list[float]
    validated: list[int]
    validation_losses: list[float]


@dataclass(frozen=True)
class Outcome:
    """What came of a variant. `settings`: those that differ from the recipe. Scores are those on all held-out
    text, or during a training those of its last validation; None before. `held_out`: a letter, the same for
    variants with the same held-out text and tokenizer. `benchmarks`: the scores of each. `seconds`: of the
    trainer in all its attempts. `usd`: None where the recipe names no price.
    """

    variant: str
    settings: str
    done: float
    tokens: int
    loss: float | None
    bits_per_byte: float | None
    held_out: str
    benchmarks: Mapping[str, Mapping[str, Any]]
    seconds: float | None
    usd: float | None
    curve: Curve | None


def outcomes(recipes: Mapping[str, Recipe]) -> list[Outcome]:
    """One for each of the recipes, which are variants of one another, in their order."""
    texts: list[Any] = []
    return [_outcome(name, recipe, recipes[BASE], texts) for name, recipe in recipes.items()]


def _outcome(name: str, recipe: Recipe, written: Recipe, texts: list[Any]) -> Outcome:
    given = leaves(written.variants.get(name, {}))
    settings = ", ".join(f"{setting} {value}" for setting, value in given)
    store = store_of(recipe)
    try:
        work, text = plan.plan_work(store, recipe), _held_out(store, recipe)
    except StoreError:  # of shards that have not been made
        return Outcome(name, settings, 0.0, 0, None, None, "", {}, None, None, None)
    if text not in texts:
        texts.append(text)
    letter = chr(ord("A") + texts.index(text))
    curve = _curve(store.root / RUNS / work.fingerprint[:16] / "metrics.jsonl")
    model, planned = store.find(work), duration.resolved(store, recipe).training.max_tokens
    tokens = curve.tokens[-1] if curve and curve.tokens else 0
    if model is None:
        loss = curve.validation_losses[-1] if curve and curve.validation_losses else None
        return Outcome(name, settings, tokens / planned, tokens, loss, None, letter, {}, None, None, curve)
    effort = Effort.of(model, recipe.launch.usd_per_hour)
    scores = _scores(store) or plan.result(store, model)
    return Outcome(
        name,
        settings,
        1.0,
        effort.tokens,
        scores.get("loss"),
        scores.get("bits_per_byte"),
        letter,
        scores.get("benchmarks") or {},
        3600 * effort.hours,
        effort.usd,
        curve,
    )


def _scores(store: Store) -> dict[str, Any] | None:
    """The evaluation on all held-out text, unless the run was stopped before it."""
    try:
        return evaluate.read(store.current(keys.EVALUATION))
    except StoreError:
        return None


def _held_out(store: Store, recipe: Recipe) -> list[str]:
    """What tells the held-out tokens apart: their hashes."""
    versions = [store.current(keys.token_shards(name)) for name in recipe.corpus_names]
    return [digest for version in versions for digest in _validation_hashes(version)]


def _validation_hashes(version: Version) -> Sequence[str]:
    return [
        file.sha256
        for part in version.parts
        for table, file in sorted(part.files.items())
        if table.startswith(keys.VALIDATION)
    ]


def _curve(metrics: Path) -> Curve | None:
    records = read_json_lines(metrics)
    steps = [record for record in records if record["kind"] == "train"]
    validations = [
        record for record in records if record["kind"] == "evaluation" and record["loss"] is not None
    ]
    if not steps:
        return None
    seconds, before, so_far = [], 0, 0.0
    for step in steps:
        so_far += (step["tokens"] - before) / step["tokens_per_second"]
        before = step["tokens"]
        seconds.append(so_far)
    return Curve(
        [step["tokens"] for step in steps],
        seconds,
        [step["loss"] for step in steps],
        [record["tokens"] for record in validations],
        [record["loss"] for record in validations],
    )
