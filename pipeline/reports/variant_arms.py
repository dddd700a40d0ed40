"""What variants are compared on, and how their runs answered it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pipeline.recipe.recipe import Recipe
from pipeline.steps.model import benchmark, harness, held_out_answers
from pipeline.steps.model.benchmark import AskedBenchmark, LogLikelihoods
from pipeline.steps.model.significance import Array
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.training import plan
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version
from pipeline.store.store import Store, StoreError
from pipeline.store.training_runs import CheckpointGoneError
from pipeline.store.variant_names import BASE, families


class DecideError(PipelineError):
    """Variants cannot be compared."""


class NothingScoredError(DecideError):
    """No run has been scored yet, which training changes."""


@dataclass(frozen=True)
class Arm:
    """A variant with its runs, which are named by their seeds: those that have `ended`, and the `missing`
    ones.

    `bits` and `wrong` have for each measure float64 [ended, clusters]. `seconds` and `usd` are those of a run
    on average. They are None where no run has ended, and `usd` also where the recipe names no price. `read`
    has the name, the settings and the content of each corpus that the runs were trained on, and of those of
    the models that they went on with. `gone`: why its runs cannot be looked for, such as initial weights that
    are not there, whose hash is part of what names the runs. `lost`: what its tokenizer does not give back of
    the text that the verdict follows from. Such an arm has no runs.
    """

    name: str
    control: str | None
    ended: Sequence[str]
    missing: Sequence[str]
    bits: Mapping[str, Array]
    wrong: Mapping[str, Array]
    seconds: float | None
    usd: float | None
    read: frozenset[tuple[str, str, str]] = frozenset()
    gone: str = ""
    lost: str = ""


def changed_between(arms: Iterable[Arm]) -> list[str]:
    """The corpora that did not hold the same text for all of these runs, although their settings are the
    same.
    """
    held: dict[tuple[str, str], set[str]] = {}
    for corpus, settings, content in frozenset().union(*(arm.read for arm in arms)):
        held.setdefault((corpus, settings), set()).add(content)
    return sorted({corpus for (corpus, _), contents in held.items() if len(contents) > 1})


def _corpora_read(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    store = store_of(recipe)
    for corpus in recipe.corpora:
        settings = f"{corpus.source.model_dump_json()} {recipe.raw.model_dump_json()}"
        yield corpus.name, settings, store.current(keys.raw(corpus.name)).data_version
    if recipe.base:
        yield from _corpora_read(recipe.base)


def measures(recipes: Mapping[str, Recipe]) -> list[AskedBenchmark]:
    """What the variants of a recipe are compared on: those of a tuning first on its held-out answers.
    Raises SourceError, DecideError where there is nothing, and NothingScoredError where a text has not been
    read yet.
    """
    recipe = recipes[BASE]
    store = store_of(recipe)
    try:
        asked = benchmark.of_recipe(store, recipe.evaluation)
        if recipe.training.objective != "pretrain":  # of documents that all of them hold out
            fraction = min(one.shards.validation_fraction for one in recipes.values())
            asked = held_out_answers.asked(store, recipe, fraction) + asked
        asked += _imported(recipes.values())
    except StoreError as error:
        raise NothingScoredError(
            f"no run has been scored on all evaluation texts ({error}): `decide --run` trains what is missing"
        ) from None
    if not asked:
        raise DecideError(
            "the recipe has nothing to compare variants on: add `evaluation: {texts: [...]}` (docs/decide.md)"
        )
    return asked


def _imported(recipes: Iterable[Recipe]) -> list[AskedBenchmark]:
    """What another program asked all models that there are."""
    models = ((store, _model(store)[0]) for store in map(store_of, recipes))
    found = [harness.answers(store, plan.final_checkpoint(model)) for store, model in models if model]
    shared = set.intersection(*map(set, found)) if found else set()
    return [asked for sha256, (asked, _) in (found[0].items() if found else ()) if sha256 in shared]


def _model(store: Store) -> tuple[Version | None, str]:
    """The model of a recipe, None without one, and why it cannot be looked for."""
    try:
        return store.current_or_none(keys.PRETRAINED_MODEL), ""
    except PipelineError as error:
        return None, str(error)


def _answers(store: Store, checkpoint: str, asked: AskedBenchmark) -> LogLikelihoods | None:
    if found := benchmark.log_likelihoods(store, checkpoint, asked):
        return found
    return harness.answers(store, checkpoint).get(asked.sha256, (asked, None))[1]


def decisive(compared_on: Sequence[AskedBenchmark]) -> list[AskedBenchmark]:
    """The measures that a verdict follows from."""
    answers = [one for one in compared_on if one.answers]
    return answers or [one for one in compared_on if one.clusters] or list(compared_on)


def score_answers(recipes: Mapping[str, Recipe], compared_on: Sequence[AskedBenchmark]) -> None:
    """Scores the models that there are on held-out answers, which training does not. Raises PipelineError."""
    asked = [one for one in compared_on if one.answers]
    for store in map(store_of, recipes.values()) if asked else ():
        if model := _model(store)[0]:
            checkpoint = plan.final_checkpoint(model)
            missing = [one for one in asked if benchmark.log_likelihoods(store, checkpoint, one) is None]
            if not missing:
                continue
            with suppress(CheckpointGoneError), store.in_progress():  # without one, the run counts as missing
                benchmark.benchmark_checkpoint(store, checkpoint, missing)


def arms(recipes: Mapping[str, Recipe], compared_on: Sequence[AskedBenchmark]) -> dict[str, Arm]:
    """The variants by name, each with the runs of its seeds."""
    named = families(recipes).items()
    return {name: _arm(name, {seed: recipes[seed] for seed in seeds}, compared_on) for name, seeds in named}


def evidence(recipes: Mapping[str, Recipe]) -> tuple[list[AskedBenchmark], dict[str, Arm]]:
    """What variants are compared on, and their arms; both empty where there is nothing yet."""
    try:
        compared_on = measures(recipes)
        return compared_on, arms(recipes, compared_on)
    except DecideError:
        return [], {}


def _arm(name: str, seeds: Mapping[str, Recipe], compared_on: Sequence[AskedBenchmark]) -> Arm:
    answers: dict[str, list[LogLikelihoods]] = {}
    efforts: list[Effort] = []
    read: set[tuple[str, str, str]] = set()
    gone = lost = ""
    for seed, recipe in seeds.items():
        store = store_of(recipe)
        model, why = _model(store)
        gone = gone or why
        if model is None:
            continue
        checkpoint = plan.final_checkpoint(model)
        found = [_answers(store, checkpoint, one) for one in compared_on]
        lost = lost or lost_text(store, checkpoint, compared_on)
        if all(found) and not lost:
            answers[seed] = [rows for rows in found if rows]
            efforts.append(Effort.of(model, recipe.launch.usd_per_hour))
            read.update(_corpora_read(recipe))
    by_measure = list(zip(compared_on, zip(*answers.values(), strict=True), strict=bool(answers)))
    return Arm(
        name,
        seeds[name].training.control,
        list(answers),
        [seed for seed in seeds if seed not in answers and not lost],
        {one.name: np.stack([one.bits(rows) for rows in runs]) for one, runs in by_measure},
        {
            one.name: np.stack([one.wrong(rows) for rows in runs])
            for one, runs in by_measure
            if one.benchmark.metric
        },
        _mean([effort.seconds for effort in efforts]),
        _mean([effort.usd for effort in efforts if effort.usd is not None]),
        frozenset(read),
        gone,
        lost,
    )


def lost_text(store: Store, checkpoint: str, compared_on: Sequence[AskedBenchmark]) -> str:
    """What a checkpoint's tokenizer does not give back of what the verdict follows from; empty if it does."""
    shares = {one.name: benchmark.not_given_back(store, checkpoint, one) for one in decisive(compared_on)}
    return ", ".join(f"{share:.1%} of {name!r}" for name, share in shares.items() if share)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
