"""The variants of a recipe: the recipe with the overrides of each."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.overrides import merged
from pipeline.recipe.post_training import Tuning
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.store import variant_names
from pipeline.store.variant_names import BASE, family
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
    """Reads one variant of a recipe, a section of its `post_training`, `hot/sft`, or the recipe itself for
    BASE, changed by `overrides`. Raises RecipeError that names the place in the file.
    """
    if variant == BASE:
        return load_recipe(path, overrides)
    written = load_recipe(path)
    sections = written.post_training.sections
    name, section = variant_names.split(variant, sections)
    if name not in (BASE, *written.all_variants) or section not in ("", *sections):
        names = [BASE, *written.all_variants]
        known = names + [variant_names.tuned(one, own) for one in names for own in sections]
        raise RecipeError(f"{path}: no variant is named {variant!r}; choose from {', '.join(known)}")
    recipe = load_recipe(path, overrides) if name == BASE else _loaded(path, written, name, overrides or {})
    return recipe.tuned(section) if section else recipe


def load_all(path: Path) -> dict[str, Recipe]:
    """The recipe as BASE, and each of its variants by name. Raises RecipeError for a variant that is invalid,
    changes the graph or what variants are scored on, or makes the same as the recipe or another variant, also
    in the sections of `post_training`. Of a grid, the combination that is the recipe itself is left out, with
    its seeds.
    """
    written = load_recipe(path)
    found = {BASE: written}
    made = {_all_decisive(written): "the recipe"}
    left_out = ""
    for name in written.all_variants:
        if family(name) == left_out:
            continue
        variant = _loaded(path, written, name, {})
        if variant.evaluation != written.evaluation:
            raise RecipeError(
                f"{path}: variants.{name}: `evaluation` is that of the recipe for all variants: "
                "change it there, and leave it out of the variant"
            )
        same = made.setdefault(_all_decisive(variant), f"variants.{name}")
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


def in_section(recipes: Mapping[str, Recipe], section: str) -> dict[str, Recipe]:
    """The recipes, or the section of the `post_training` of each if one is named, by the names of the
    variants.
    """
    return {name: recipe.tuned(section) if section else recipe for name, recipe in recipes.items()}


def distinct(recipes: Mapping[str, Recipe], section: str = "") -> dict[str, Recipe]:
    """As `in_section`, without the variants, and their seeds, that make the same there as one before them."""
    found: dict[str, Recipe] = {}
    made = set()
    for name, recipe in in_section(recipes, section).items():
        if family(name) == name:
            if decisive(recipe) in made:
                continue
            made.add(decisive(recipe))
        if family(name) in (name, *found):
            found[name] = recipe
    return found


def _loaded(path: Path, written: Recipe, name: str, overrides: dict[str, Any]) -> Recipe:
    place, given = f"{path}: variants.{name}", written.all_variants[name]
    try:
        recipe = load_recipe(path, merged(given, overrides), name)
    except RecipeError as error:
        raise RecipeError(f"{place}: {str(error).removeprefix(f'{path}: ')}") from None
    recipe = recipe.model_copy(update={"variants": {}, "seeds": 1})
    check_graph(recipe, written, place)
    return recipe


def check_graph(recipe: Recipe, written: Recipe, place: str) -> None:
    """Raises RecipeError for settings that would change the graph of assets, that of `written`."""
    names = written.corpus_names
    ours, theirs = (one.post_training.sections for one in (recipe, written))
    others = [name for name in ours if name in theirs and _names(ours[name]) != _names(theirs[name])]
    if recipe.corpus_names != names:
        change = "add, remove or reorder corpora, because they define the graph"
    elif ours.keys() != theirs.keys():
        change = "add or remove sections of post_training, because they define the graph"
    elif others:
        change = f"add, remove or reorder corpora of post_training.{others[0]}, because they define the graph"
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


def _names(tuning: Tuning) -> list[str]:
    return [corpus.name for corpus in tuning.corpora]


def _all_decisive(recipe: Recipe) -> str:
    """What decides the model of a recipe, and those of all sections of its `post_training`."""
    sections = map(recipe.tuned, recipe.post_training.sections)
    return json.dumps([decisive(one) for one in (recipe, *sections)])


def decisive(recipe: Recipe) -> str:
    """The settings that change what a recipe makes, and what the recipes make whose model it goes on with.
    The search for a mixture is left out, since no variant has one.
    """
    settings = recipe.model_dump(mode="json", exclude={*WITHOUT_EFFECT})
    settings["mixture"].pop("search", None)
    for name in OPERATIONAL:
        settings["training"].pop(name, None)
    if recipe.base and recipe.tuning:
        settings |= {"base": decisive(recipe.base), "epochs": recipe.tuning.epochs}
        settings |= {"rehearsal": recipe.rehearsal}
    return json.dumps(settings, sort_keys=True)
