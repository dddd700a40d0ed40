"""Runs that differ in the seed alone: `seeds: 3` stands for two more variants beside each."""

from collections.abc import Collection, Mapping
from typing import Any

from pipeline.store.grid import expanded

BASE = "base"  # the recipe as it is written, beside its variants
SEEDS, MARK = "seeds", "."  # no name that is written has a mark


def all_variants(written: Mapping[str, Any], seeds: int = 1, seed: int = 0) -> dict[str, Any]:
    """The variants that are `written`, by name, those of grids, and for each further seed of BASE and of each
    a variant `NAME.2`, `NAME.3`, ... `seeds` and `seed` are those of the recipe. Raises ValueError.
    """
    found: dict[str, Any] = {}
    for name, given in {BASE: {}, **expanded(written)}.items():
        settings = {key: value for key, value in given.items() if key != SEEDS}
        if name != BASE:
            found[name] = settings
        runs = given.get(SEEDS, seeds)
        if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
            raise ValueError(f"{name}.{SEEDS}: must be a number from 1 on, not {runs!r}")
        training = settings.get("training") or {}
        first = training.get("seed", seed) if isinstance(training, Mapping) else None
        if not isinstance(first, int):  # refused where the variant is read
            continue
        for number in range(2, runs + 1):
            own = {**training, "seed": first + number - 1}
            found[f"{name}{MARK}{number}"] = {**settings, "training": own}
    return found


def family(name: str) -> str:
    """The variant of which a variant is another seed."""
    return name.partition(MARK)[0]


def families(names: Collection[str]) -> dict[str, list[str]]:
    """The variants by the one of which they are seeds, in the order of their seeds."""
    return {first: [name for name in names if family(name) == first] for first in map(family, names)}
