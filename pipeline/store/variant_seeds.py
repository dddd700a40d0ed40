"""Runs that differ in the seed alone: `seeds: 3` stands for two more variants beside each."""

from collections.abc import Mapping
from typing import Any

from pipeline.store.variant_grids import expanded
from pipeline.store.variant_names import BASE, MARK

SEEDS = "seeds"
MOST_SEEDS = 1_000  # of one variant, each of which is a recipe that is checked
# Where a recipe says how a model is trained: TRAINING, and that of a section of `post_training`
Place = tuple[str, ...]
TRAINING: Place = ("training",)


def all_variants(
    written: Mapping[str, Any], seeds: int = 1, first: Mapping[Place, int] | None = None
) -> dict[str, Any]:
    """The variants that are `written`, by name, those of grids, and for each further seed of BASE and of each
    a variant `NAME.2`, `NAME.3`, ... `seeds` is that of the recipe, and `first` has the seeds that it sets. A
    section of `post_training` without a seed of its own has that of TRAINING. Raises ValueError.
    """
    usual = {TRAINING: 0, **(first or {})}
    found: dict[str, Any] = {}
    for name, given in {BASE: {}, **expanded(written)}.items():
        settings = {key: value for key, value in given.items() if key != SEEDS}
        if name != BASE:
            found[name] = settings
        runs = given.get(SEEDS, seeds)
        if not isinstance(runs, int) or isinstance(runs, bool) or not 1 <= runs <= MOST_SEEDS:
            raise ValueError(f"{name}.{SEEDS}: must be a number from 1 to {MOST_SEEDS:,}, not {runs!r}")
        own = usual | seeds_in(settings)
        if not all(isinstance(seed, int) for seed in own.values()):  # refused where the variant is read
            continue
        for number in range(2, runs + 1):
            further = settings
            for place, seed in own.items():
                further = _with(further, (*place, "seed"), seed + number - 1)
            found[f"{name}{MARK}{number}"] = further
    return found


def seeds_in(settings: Mapping[str, Any]) -> dict[Place, Any]:
    """The seeds that settings set, by place; None where a `training` is no mapping."""
    sections = settings.get("post_training")
    trainings = {TRAINING: settings.get("training")}
    for name, section in sections.items() if isinstance(sections, Mapping) else ():
        if isinstance(section, Mapping):
            trainings["post_training", name, "training"] = section.get("training")
    found: dict[Place, Any] = {}
    for place, training in trainings.items():
        if not isinstance(training or {}, Mapping):
            found[place] = None
        elif training and "seed" in training:
            found[place] = training["seed"]
    return found


def _with(settings: Mapping[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """The settings with a value at a place."""
    first, *rest = place
    inside = _with(settings.get(first) or {}, tuple(rest), value) if rest else value
    return {**settings, first: inside}
