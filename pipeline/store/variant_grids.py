"""Grids: a variant with lists of values stands for a variant with each combination of the values."""

import json
import re
from collections.abc import Mapping
from itertools import product
from typing import Any

EACH = "each"  # `lr: {each: [1e-3, 3e-3]}`


def expanded(variants: Mapping[str, Any]) -> dict[str, Any]:
    """The variants by name. The name of a variant in a grid has its values: `lr_1e_3`. Raises ValueError."""
    found: dict[str, Any] = {}
    for grid, settings in variants.items():
        combinations = _combinations(settings)
        if not combinations:
            raise ValueError(f"{grid}: `{EACH}` lists no values")
        for values, combination in combinations:
            name = "_".join([grid, *map(_in_name, values)])
            if name in found:
                raise ValueError(f"{grid}: two variants are named {name!r}: rename one, or remove a value")
            found[name] = combination
    return found


def _combinations(settings: Any) -> list[tuple[list[Any], Any]]:
    """The settings with each combination of the values that they list, which come first."""
    if not isinstance(settings, Mapping):
        return [([], settings)]
    if settings.keys() == {EACH} and isinstance(settings[EACH], list):
        return [([value], value) for value in settings[EACH]]
    found = []
    for combination in product(*map(_combinations, settings.values())):
        values = [value for chosen, _ in combination for value in chosen]
        found.append((values, dict(zip(settings, (inner for _, inner in combination), strict=True))))
    return found


def _in_name(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
