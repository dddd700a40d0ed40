"""The recipe, the store and the engine as one Dagster resource."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.engine import LocalEngine
from pipeline.recipe import Recipe, RecipeError, load_recipe, recipe_path
from pipeline.store import Store

STORE_VARIABLE = "GROUNDWORK_STORE"


def default_store() -> Store:
    """GROUNDWORK_STORE, else `store` beside Dagster's own records."""
    home = Path(os.environ.get("DAGSTER_HOME") or Path(__file__).parents[2] / "dagster_home")
    return Store(Path(os.environ.get(STORE_VARIABLE) or home / "store").absolute())


class Workshop(dg.ConfigurableResource):
    """What every stage works with. `overrides` are laid over the recipe for one run: `{training: {max_tokens: 1048576}}`."""

    overrides: dict[str, Any] = Field(default={}, description="Settings of the recipe to change for this run, nested as in the recipe.")

    @cached_property
    def recipe(self) -> Recipe:
        path = recipe_path()
        recipe, graph = load_recipe(path, self.overrides), load_recipe(path)
        if recipe.corpus_names != graph.corpus_names:
            raise RecipeError(f"{path}: overrides cannot add, remove or reorder corpora, which make the graph: change the recipe, or use another one")
        return recipe

    @cached_property
    def store(self) -> Store:
        return default_store()

    @cached_property
    def engine(self) -> LocalEngine:
        return LocalEngine(self.recipe.engine.workers)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Ends the worker processes with the run."""
        if "engine" in self.__dict__:  # never made when the recipe could not be read
            self.engine.close()
