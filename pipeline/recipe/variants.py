"""The variants of a recipe: the recipe with the overrides of each."""

import json
from pathlib import Path
from typing import Any

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.overrides import merged
from pipeline.recipe.recipe import BASE, Recipe, RecipeError
from pipeline.store.seeds import family
from trainer.config import OPERATIONAL

# The sections that do not change what is made.
WITHOUT_EFFECT = (
    "name",
    "dedup_guard",
    "checks",
    "store",
    "engine",
    "launch",
    "token_index",
    "retention",
    "seeds",
    "variants",
    "post_training",
)


def load(path: Path, variant: str, overrides: dict[str, Any] | None = None) -> Recipe:
    """Reads one variant of a recipe, a section of its `post_training`, or the recipe itself for BASE, changed
    by `overrides`. Raises RecipeError that names the place in the file.
    """
    if variant == BASE:
        return load_recipe(path, overrides)
    written = load_recipe(path)
    if variant in written.post_training.sections:
        return load_recipe(path, overrides).tuned(variant)
    if variant not in written.all_variants:
        known = ", ".join([BASE, *written.all_variants, *written.post_training.sections])
        raise RecipeError(f"{path}: no variant is named {variant!r}; choose from {known}")
    return _loaded(path, written, variant, overrides or {})


def load_all(path: Path) -> dict[str, Recipe]:
    """The recipe as BASE, and each of its variants by name. Raises RecipeError for a variant that is invalid,
    changes the graph or what variants are scored on, or makes the same as the recipe or another variant. Of
    a grid, the combination that is the recipe itself is left out, with its seeds.
    """
    written = load_recipe(path)
    found = {BASE: written}
    made = {_decisive(written): "the recipe"}
    left_out = ""
    for name in written.all_variants:
        if family(name) == left_out:
            continue
        variant = _loaded(path, written, name, {})
        if variant.evaluation != written.evaluation:
            raise RecipeError(f"{path}: variants.{name}: `evaluation` is that of the recipe for all variants")
        if variant.post_training != written.post_training:
            raise RecipeError(f"{path}: variants.{name}: `post_training` is of the recipe itself alone")
        same = made.setdefault(_decisive(variant), f"variants.{name}")
        if same == "the recipe" and name not in written.variants and family(name) == name:
            left_out = name
            continue
        if same != f"variants.{name}":
            raise RecipeError(
                f"{path}: variants.{name}: makes the same as {same}: change a setting that decides what is "
                "made, or leave the variant out"
            )
        found[name] = variant
    return found


def _loaded(path: Path, written: Recipe, name: str, overrides: dict[str, Any]) -> Recipe:
    place, given = f"{path}: variants.{name}", written.all_variants[name]
    try:
        recipe = load_recipe(path, merged(given, overrides))
    except RecipeError as error:
        raise RecipeError(f"{place}: {str(error).removeprefix(f'{path}: ')}") from None
    recipe = recipe.model_copy(update={"variants": {}, "seeds": 1})
    recipe._variant = name
    check_graph(recipe, written, place)
    return recipe


def check_graph(recipe: Recipe, written: Recipe, place: str) -> None:
    """Raises RecipeError for changed settings that would change the graph of assets, which is that of
    `written`.
    """
    names = written.corpus_names
    if recipe.corpus_names != names:
        change = "add, remove or reorder corpora, because they define the graph"
    elif any(recipe.is_transformed(name) != written.is_transformed(name) for name in names):
        change = "add the first transform of a corpus or remove the last one, which changes the graph"
    elif any(recipe.is_edited(name) and not written.is_edited(name) for name in names):
        change = "add the first edits of a corpus, which adds assets to the graph"
    elif recipe.evaluation.texts != written.evaluation.texts:
        change = "change evaluation.texts, on which variants are compared"
    elif recipe.quality_model and not written.quality_model:
        change = "add a quality model, which adds an asset to the graph"
    elif recipe.decontamination and not written.decontamination:
        change = "add decontamination, which adds assets to the graph"
    else:
        return
    raise RecipeError(f"{place}: overrides cannot {change}: change the recipe, or use another one")


def _decisive(recipe: Recipe) -> str:
    """The settings that change what is made, but for the search of a mixture, which no variant has."""
    settings = recipe.model_dump(mode="json", exclude={*WITHOUT_EFFECT})
    settings["mixture"].pop("search", None)
    for name in OPERATIONAL:
        settings["training"].pop(name, None)
    return json.dumps(settings, sort_keys=True)
