"""Runs that differ in the seed alone: `seeds: 3` stands for two more variants beside each."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.recipe.overrides import merged

SEEDS, MARK = "seeds", "."  # no name that is written has a mark


def with_seeds(variants: Mapping[str, Any], base: str, seeds: int, seed: int) -> dict[str, Any]:
    """The variants by name, and for each further seed of `base` and of each a variant `NAME.2`, `NAME.3`, ...
    `seeds` and `seed` are those of the recipe. Raises ValueError.
    """
    found: dict[str, Any] = {}
    for name, written in {base: {}, **variants}.items():
        settings = {key: value for key, value in written.items() if key != SEEDS}
        if name != base:
            found[name] = settings
        runs = written.get(SEEDS, seeds)
        if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
            raise ValueError(f"{name}.{SEEDS}: must be a number from 1 on, not {runs!r}")
        training = settings.get("training")
        first = training.get("seed", seed) if isinstance(training, Mapping) else seed
        if not isinstance(first, int):  # refused where the variant is read
            continue
        for number in range(2, runs + 1):
            own = {"training": {"seed": first + number - 1}}
            found[f"{name}{MARK}{number}"] = merged(settings, own)
    return found


def family(name: str) -> str:
    """The variant of which a variant is another seed."""
    return name.partition(MARK)[0]


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """The variants by the one of which they are seeds, in the order of their seeds."""
    return {first: [name for name in names if family(name) == first] for first in map(family, names)}
