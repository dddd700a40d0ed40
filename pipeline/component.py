"""A recipe as a component of somebody's own Dagster project: docs/deployment.md."""

import keyword
import logging
import re
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, field_validator

from pipeline.assets.graph import definitions
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.loading import recipe_path
from pipeline.recipe.post_training import SECTIONS
from pipeline.steps import compile_ahead
from pipeline.store.errors import PipelineError
from trainer.system import terminal
from trainer.system.errors import TrainerError

RECIPE, PREFIX, POOL = "recipe", "key_prefix", "pool"
PREFIX_PATTERN = "^[A-Za-z0-9_]*$"  # as Dagster wants the names that it begins

log = logging.getLogger(__name__)


class RecipeScaffolder(dg.Scaffolder):
    """Writes the component with the skeleton of a recipe beside it."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        from pipeline.cli import init  # here, because no code location needs a command

        path = request.target_path / "recipe.yaml"
        init.write(path, request.target_path.name)
        dg.scaffold_component(request, {RECIPE: path.name, PREFIX: _prefix_of(request.target_path.name)})


def _prefix_of(folder: str) -> str:
    """A prefix that is like the name of a folder. Dagster reads `2024` and `None` as values of Python."""
    prefix = re.sub("[^A-Za-z0-9_]+", "_", folder)
    taken = prefix in SECTIONS or keyword.iskeyword(prefix) or not prefix.isidentifier()
    return f"my_{prefix}" if taken else prefix


@dg.scaffold_with(RecipeScaffolder)
class RecipeComponent(dg.Component, dg.Model, dg.Resolvable):
    """The assets, checks, jobs, sensors and schedules of a recipe of Groundwork."""

    recipe: str = Field(
        description="The YAML file of the recipe, relative to this folder, or the name of a shipped recipe."
    )
    key_prefix: str = Field(
        "",
        json_schema_extra={"pattern": PREFIX_PATTERN},  # for editors: what is wrong is said below, in words
        description="The prefix of the keys of the assets and of all other names, such as the job "
        "`mine_pretrain`. Each recipe of a project needs a prefix of its own; one of them can do without.",
    )
    pool: str = Field(
        "gpu",
        description="The pool in which trainings and evaluations wait for each other. Recipes that train on "
        "devices of their own have pools of their own.",
    )

    @field_validator(RECIPE, POOL, PREFIX, mode="before")
    @classmethod
    def _is_text(cls, given: object) -> object:
        """Dagster reads text in quotes as an expression, too."""
        if not isinstance(given, str):
            raise ValueError(f"must be text, and Dagster reads {given!r} as a value: begin it with a letter")
        return given

    @field_validator(RECIPE)
    @classmethod
    def _names_a_recipe(cls, recipe: str) -> str:
        if not recipe.strip():
            raise ValueError("must name the YAML file of a recipe, or a shipped recipe, and is empty")
        return recipe

    @field_validator(POOL)
    @classmethod
    def _names_a_pool(cls, pool: str) -> str:
        """Without a pool, trainings would share a device."""
        if not re.fullmatch(r"\S+", pool):
            raise ValueError(f"must be a name without spaces, such as `gpu`, not {pool!r}")
        return pool

    @field_validator(PREFIX)
    @classmethod
    def _begins_names(cls, prefix: str) -> str:
        if not re.fullmatch(PREFIX_PATTERN, prefix):
            raise ValueError(
                f"must be letters from A to Z, of either case, digits and `_`, such as `mine`, not {prefix!r}"
            )
        if prefix in SECTIONS:
            raise ValueError(
                f"{prefix!r} begins the keys of a section of `post_training` in the recipe without a prefix; "
                f"choose another, such as `my_{prefix}`"
            )
        return prefix

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """A recipe that cannot be read is one asset that says why, so that the others of the project stay."""
        # in the log of a run
        compile_ahead.announce()
        terminal.begin_in_log(log.info)
        alike = [
            one
            for one in context.component_tree.get_all_components(RecipeComponent)
            if one.key_prefix == self.key_prefix
        ]
        folder = context.path if context.path.is_dir() else context.path.parent
        if len(alike) > 1:
            raise PipelineError(
                f"{folder / 'defs.yaml'}: {len(alike)} recipes of this project have the key_prefix "
                f"{self.key_prefix!r}: give each its own in its defs.yaml"
            )
        file = folder / recipe_path(self.recipe)
        used = UsedRecipe(file, self.key_prefix, self.pool)
        if not file.exists():
            return _unreadable(used, file, f"{file}: no such recipe; name another in `recipe` of defs.yaml")
        try:
            return definitions(used)
        except (PipelineError, TrainerError) as error:
            return _unreadable(used, file, str(error))


def _unreadable(used: UsedRecipe, file: Path, problem: str) -> dg.Definitions:
    remedy = "Correct the file, then reload the code location."
    missing = f"`{file}` cannot be used, so its assets are missing:"

    @dg.asset(
        key=used.asset("unreadable_recipe"),
        group_name=used.name("unreadable_recipe"),
        kinds={"yaml"},
        description=f"{missing}\n\n```text\n{problem}\n```\n{remedy}",
    )
    def _asset() -> None:
        raise dg.Failure(f"{problem}. {remedy}", allow_retries=False)

    return dg.Definitions([_asset])
