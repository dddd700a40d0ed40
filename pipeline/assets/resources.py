"""The recipe, the store and the engine as one Dagster resource."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.engine import Engine, LocalEngine
from pipeline.recipe import Recipe, load_recipe, recipe_path
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
        return load_recipe(recipe_path(), self.overrides)

    @cached_property
    def store(self) -> Store:
        return default_store()

    @cached_property
    def engine(self) -> Engine:
        return LocalEngine(self.recipe.engine.workers)
