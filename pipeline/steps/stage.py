"""A row of the table of stages, and what the UI shows of it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.store.manifest import Version
from pipeline.store.work import Work


def _none(recipe: Recipe, *names: str) -> Sequence[Any]:
    """For a stage that has no settings, or that is made from no other one."""
    return ()


@dataclass(frozen=True)
class Page:
    """What the UI shows of a stage that is an asset: `{corpus}` and `{source}`, the kind of its source, may
    stand in any text. `make` makes the stage, given the store, the engine, its names and its settings.

    `numbers` are counts of a version by their label. `breakdowns` are tables of the counts that begin with a
    prefix.
    """

    make: Callable[..., Version]
    version: str
    description: str
    kinds: tuple[str, ...] = ("numba", "parquet")
    group: str = "{corpus}"
    job: str = "corpus"  # the first job that makes it
    numbers: Mapping[str, str] = field(default_factory=dict)
    breakdowns: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """A row of the table. `key` may name `{corpus}`, and then also one of the recipe's own `{filter}`s, or
    `{text}`, an evaluation text: these names are what each function gets after the store or the recipe.

    `settings` are those of a recipe for the stage, which `work` and `page.make` get last. `work` gives the
    work that they mean, or the version where no work can be computed. `reads` are the keys that the stage is
    made from; `wanted` tells whether a recipe has it. `decisive` are the settings in which variants of it
    differ, where these are not all. A stage without a `page` is made with the next one that has it.
    """

    key: str
    work: Callable[..., Version | Work]
    settings: Callable[..., Sequence[Any]] = _none
    reads: Callable[..., Sequence[str]] = _none
    wanted: Callable[..., bool] = lambda recipe, *names: True
    page: Page | None = None
    decisive: Callable[[Recipe], Any] | None = None

    def keys(self, recipe: Recipe) -> Iterator[str]:
        """The keys that a recipe has of this stage."""
        known = {
            "corpus": recipe.corpus_names,
            "filter": recipe.filter_names,
            "text": [text.name for text in recipe.evaluation.texts],
        }
        for names in product(*(known[placeholder] for placeholder in self.placeholders)):
            if self.wanted(recipe, *names):
                yield self.key.format(**dict(zip(self.placeholders, names, strict=True)))

    @property
    def placeholders(self) -> list[str]:
        """What a key of this stage names, in its order."""
        return re.findall(r"{(\w+)}", self.key)

    def names(self, key: str) -> tuple[str, ...] | None:
        """The corpus, and the filter, in a key of this stage; None for a key of another one."""
        found = re.fullmatch(re.sub(r"{\w+}", "([^/]+)", self.key), key)
        return found.groups() if found else None

    def deciding(self, recipe: Recipe) -> Any:
        """All settings of a recipe that decide what this stage makes."""
        if self.decisive:
            return self.decisive(recipe)
        return [(key, self.settings(recipe, *self.names(key) or ())) for key in self.keys(recipe)]
