"""Reading a recipe: which one is in use, and what is wrong with its file."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pipeline.plugins.filters import Filter
from pipeline.plugins.loading import PluginError, make_importable
from pipeline.plugins.transforms import Transform
from pipeline.recipe.overrides import merged
from pipeline.recipe.problems import explained
from pipeline.recipe.recipe import RECIPES, Origin, Recipe, RecipeError
from pipeline.recipe.reference import paths_of
from pipeline.sources.source import SourceError
from pipeline.sources.user_code import PythonConfig
from pipeline.store.params import anchored
from trainer.system import yaml_file
from trainer.system.errors import reason
from trainer.system.paths import at_home

RECIPE_VARIABLE = "GROUNDWORK_RECIPE"


def recipe_path(named: str | None = None) -> Path:
    """The path of a recipe by path or shipped name; by default that of GROUNDWORK_RECIPE, or `default`."""
    named = named or os.environ.get(RECIPE_VARIABLE) or "default"
    shipped = RECIPES / f"{named}.yaml"
    return shipped if shipped.exists() else at_home(named)


def stored_at(path: Path | None = None) -> str | None:
    """The `store` of the recipe at `path`, or of the one in use. None if it has none, or cannot be read."""
    with suppress(OSError, ValueError, yaml.YAMLError, AttributeError):
        found = yaml_file.parse((path or recipe_path()).read_text(encoding="utf-8")).get("store")
        return found if isinstance(found, str) else None
    return None


def load_recipe(path: Path, overrides: dict[str, Any] | None = None, variant: str = "") -> Recipe:
    """Reads and checks a recipe, changed by `overrides` as `merged` does; they may be those of a `variant`.
    Raises RecipeError.
    """
    settings = _settings(path)
    try:
        origin = Origin(path.absolute(), variant)
        recipe = Recipe.model_validate(merged(settings, overrides or {}), context=origin)
    except ValidationError as error:
        raise RecipeError(f"{path}: {explained(error, paths_of)}") from None
    except (SourceError, ValueError) as error:
        raise RecipeError(f"{path}: {error}") from None
    except RecursionError as error:
        raise RecipeError(f"{path}: {yaml_file.TOO_DEEP}") from error
    if recipe.training.lora and not recipe.training.pretrained:
        raise RecipeError(
            f"{path}: training.lora needs pretrained weights: set training.pretrained, or leave lora out"
        )
    _check_own_code(recipe, path)
    # Relative paths start at the recipe's directory, wherever the command is run.
    recipe = anchored(recipe, path.absolute().parent)
    try:
        for benchmark in recipe.evaluation.benchmarks:
            benchmark.check()
    except SourceError as error:
        raise RecipeError(f"{path}: evaluation.benchmarks: {error}") from None
    return recipe


def _settings(path: Path) -> dict[str, Any]:
    """What the file of a recipe holds, unchecked. Raises RecipeError."""
    try:
        settings = yaml_file.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        shipped = ", ".join(sorted(found.stem for found in RECIPES.glob("*.yaml")))
        raise RecipeError(
            f"{path}: no such recipe. Name a YAML file, or one of {shipped}, in --recipe or {RECIPE_VARIABLE}"
        ) from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: is not UTF-8 at byte {error.start}: save it as UTF-8") from error
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({reason(error)}): name a YAML file") from error
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        if isinstance(error, yaml.MarkedYAMLError):
            line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
            problem = f"{line}{error.problem}"
        raise RecipeError(f"{path}: not valid YAML: {problem}") from error
    if not isinstance(settings, dict):
        raise RecipeError(
            f"{path}: a recipe must be a mapping with at least `name`, `corpora` and `training`"
        )
    return settings


def _check_own_code(recipe: Recipe, path: Path) -> None:
    """Imports the user's code that a recipe names, from the recipe's directory or Python's search path."""
    corpora = {f"corpora.{number}.source": corpus.source for number, corpus in enumerate(recipe.corpora)}
    sets = recipe.decontamination.sets if recipe.decontamination else ()
    corpora |= {f"decontamination.sets.{number}.source": one.source for number, one in enumerate(sets)}
    texts = recipe.evaluation.texts
    corpora |= {f"evaluation.texts.{number}.source": text.source for number, text in enumerate(texts)}
    rules = {"quality": recipe.quality}
    rules |= {
        f"corpora.{number}.quality": own for number, one in enumerate(recipe.corpora) if (own := one.quality)
    }
    named: dict[str, Any] = {
        **{where: source for where, source in corpora.items() if isinstance(source, PythonConfig)},
        **{f"transforms.{number}": Transform(entry) for number, entry in enumerate(recipe.transforms)},
        **{
            f"{where}.filters.{number}": Filter(entry)
            for where, quality in rules.items()
            for number, entry in enumerate(quality.filters)
        },
    }
    if named:
        make_importable(path.parent.absolute())
    for where, code in named.items():
        try:
            code.check()
        except PluginError as error:
            raise RecipeError(f"{path}: {where}: {error}") from None
