"""The variants of a recipe: the recipe with the overrides of each, and which stages they have in common."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.recipe.overrides import CORPORA, PRESETS, leaves, merged
from pipeline.recipe.recipe import BASE, Recipe, RecipeError, load_recipe
from trainer.config import OPERATIONAL

# What decides each stage, in the order of the stages.
STAGES = {
    "raw": ("corpora.source", "raw"),
    "transformed": ("transforms",),
    "scrubbed": ("scrub",),
    "quality": ("quality",),
    "contamination": ("decontamination",),
    "dedup": ("dedup",),
    "tokenizer": ("tokenizer",),
    "token_shards": ("shards",),
    "pretrained_model": ("corpora.weight", "mixture", "training", "duration"),
    "evaluation": ("evaluation",),
}


def load(path: Path, variant: str, overrides: dict[str, Any] | None = None) -> Recipe:
    """Reads one variant of a recipe, or the recipe itself for BASE, changed by `overrides`. Raises
    RecipeError that names the place in the file.
    """
    if variant == BASE:
        return load_recipe(path, overrides)
    written = load_recipe(path)
    if variant not in written.variants:
        known = ", ".join([BASE, *written.variants])
        raise RecipeError(f"{path}: no variant is named {variant!r}; choose from {known}")
    return _loaded(path, written, variant, overrides or {})


def load_all(path: Path) -> dict[str, Recipe]:
    """The recipe as BASE, and each of its variants by name. Raises RecipeError for a variant that is invalid,
    changes the graph, or makes the same as the recipe or another variant.
    """
    written = load_recipe(path)
    found = {BASE: written}
    made = {_decisive(written): "the recipe"}
    for name in written.variants:
        variant = _loaded(path, written, name, {})
        same = made.setdefault(_decisive(variant), f"variants.{name}")
        if same != f"variants.{name}":
            raise RecipeError(
                f"{path}: variants.{name}: makes the same as {same}: change a setting that decides what is "
                "made, or leave the variant out"
            )
        found[name] = variant
    return found


def first_stage(recipes: Mapping[str, Recipe]) -> str | None:
    """The first of the STAGES that is not the same in all recipes. None without a variant."""
    settings = [_settings(recipe) for recipe in recipes.values()]
    for stage, sections in STAGES.items():
        for section in sections:
            if any(one.get(section) != settings[0].get(section) for one in settings):
                return stage
    return None


def _loaded(path: Path, written: Recipe, name: str, overrides: dict[str, Any]) -> Recipe:
    place, given = f"{path}: variants.{name}", written.variants[name]
    try:
        recipe = load_recipe(path, merged(given, overrides))
    except RecipeError as error:
        raise RecipeError(f"{place}: {str(error).removeprefix(f'{path}: ')}") from None
    recipe = recipe.model_copy(update={"variants": {}})
    recipe._variant = name
    check_graph(recipe, written, place)
    if not overrides:
        for setting, value in _without_effect(given, recipe, written):
            raise RecipeError(
                f"{place}.{setting}: is {value!r} without the variant, too, so that it has no effect: leave "
                "it out"
            )
    return recipe


def check_graph(recipe: Recipe, written: Recipe, place: str) -> None:
    """Raises RecipeError for changed settings that would change the graph of assets, which is that of
    `written`.
    """
    change = "change the recipe, or use another one"
    if recipe.corpus_names != written.corpus_names:
        raise RecipeError(
            f"{place}: overrides cannot add, remove or reorder corpora, because they define the graph: "
            f"{change}"
        )
    if any(recipe.is_transformed(name) != written.is_transformed(name) for name in written.corpus_names):
        raise RecipeError(
            f"{place}: overrides cannot add the first transform of a corpus or remove the last one, which "
            f"changes the graph: {change}"
        )
    if recipe.decontamination and not written.decontamination:
        raise RecipeError(
            f"{place}: overrides cannot add decontamination, which adds assets to the graph: {change}"
        )


def _without_effect(given: Mapping[str, Any], recipe: Recipe, written: Recipe) -> Iterator[tuple[str, Any]]:
    """The overrides that leave the recipe as it is."""
    ours, theirs = (
        dict(leaves(_by_corpus(one.model_dump(mode="json", by_alias=True)))) for one in (recipe, written)
    )
    changed = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
    for setting, value in leaves(given):
        section, _, key = setting.rpartition(".")
        known = any(f"{name}.".startswith(f"{setting}.") for name in ours | theirs)
        # A name that stands for settings, as that of a profile does, is none of them itself.
        place = setting if known and key not in PRESETS.values() else section
        if not any(f"{name}.".startswith(f"{place}." if place else "") for name in changed):
            yield setting, value


def _by_corpus(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {CORPORA: {corpus["name"]: corpus for corpus in settings[CORPORA]}}


def _settings(recipe: Recipe) -> dict[str, Any]:
    """What the STAGES are decided by."""
    settings = recipe.model_dump(mode="json")
    corpora = settings.pop(CORPORA)
    for setting in ("source", "weight"):
        settings[f"{CORPORA}.{setting}"] = [corpus[setting] for corpus in corpora]
    settings["mixture"].pop("search", None)  # which no stage here depends on
    settings["training"] = {
        name: value for name, value in settings["training"].items() if name not in OPERATIONAL
    }
    return {name: settings.get(name) for sections in STAGES.values() for name in sections}


def _decisive(recipe: Recipe) -> str:
    return json.dumps(_settings(recipe), sort_keys=True)
