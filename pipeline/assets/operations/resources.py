"""The recipe, the store and the engine as one Dagster resource."""

from functools import cached_property
from typing import Any

import dagster as dg
from pydantic import Field

from pipeline.assets.operations import orphaned_runs
from pipeline.assets.operations.launchpad import DedupKnobs, ShardKnobs, TrainingKnobs, values
from pipeline.recipe.recipe import Recipe, RecipeError, load_recipe, merged, recipe_path
from pipeline.store.engine import LocalEngine
from pipeline.store.versions import Store, default_store

KNOBS: dict[str, type[dg.Config]] = {"training": TrainingKnobs, "dedup": DedupKnobs, "shards": ShardKnobs}


class PipelineResources(dg.ConfigurableResource):
    """The recipe, the store and the engine of a run. Settings given here override the recipe for this run."""

    training: TrainingKnobs = TrainingKnobs()
    dedup: DedupKnobs = DedupKnobs()
    shards: ShardKnobs = ShardKnobs()
    overrides: dict[str, Any] = Field(
        default={}, description="Any other setting of the recipe, nested as in the recipe."
    )

    @cached_property
    def recipe(self) -> Recipe:
        path = recipe_path()
        knobs = {name: getattr(self, name).model_dump(exclude_none=True) for name in KNOBS}
        recipe, graph = load_recipe(path, merged(knobs, self.overrides)), load_recipe(path)
        if recipe.corpus_names != graph.corpus_names:
            raise RecipeError(
                f"{path}: overrides cannot add, remove or reorder corpora, because they define the graph: "
                "change the recipe, or use another one"
            )
        if any(recipe.is_transformed(name) != graph.is_transformed(name) for name in graph.corpus_names):
            raise RecipeError(
                f"{path}: overrides cannot add the first transform of a corpus or remove the last one, which "
                "changes the graph: change the recipe, or use another one"
            )
        return recipe

    @cached_property
    def store(self) -> Store:
        return default_store()

    @cached_property
    def engine(self) -> LocalEngine:
        return LocalEngine(self.recipe.engine.workers)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Raises for invalid settings before anything runs, and frees the pools of runs that were killed."""
        _ = self.recipe
        if context.instance and context.run:
            orphaned_runs.report(context.instance)
            orphaned_runs.claim(context.instance, context.run)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Ends the worker processes with the run."""
        if "engine" in self.__dict__:  # missing if the recipe is invalid
            self.engine.close()


def launchpad(recipe: Recipe) -> dict[str, Any]:
    """The settings of the workshop with which the Launchpad opens: the recipe's values of the knobs."""
    settings = recipe.model_dump(mode="json")
    return {"workshop": {"config": {name: values(knobs, settings[name]) for name, knobs in KNOBS.items()}}}
