"""The JSON Schema of a recipe, and every setting as it describes them, for `recipe --explain`. The schema for
editors, SCHEMA, and the page docs/recipe.md are made of the same by `python -m tests.recipe_page`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pipeline.plugins.settings import CLASSIFIER, OWN_CODE
from pipeline.recipe.recipe import RECIPES, Recipe, RecipeError
from trainer.system.errors import did_you_mean

SCHEMA = RECIPES / "recipe.schema.json"
Schema = dict[str, Any]
WORDS = {
    "integer": ("whole number", "whole numbers"),
    "number": ("number", "numbers"),
    "boolean": ("true or false", "true or false"),
    "string": ("text", "texts"),
    "path": ("path", "paths"),
    "null": ("null", "null"),
    "": ("any value", "any values"),
}
# the keys whose names in a recipe differ from those in the model
RECIPE_KEYS = {("ExistingTokenizer", "source"): "from"}
VARIANTS = {
    "TokenizerParams": "tokenizer to train",
    "ExistingTokenizer": "existing tokenizer",
    "FilterParams": OWN_CODE,
    "FastTextParams": CLASSIFIER,
}
LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
NEAREST = 3
DERIVED, SECTION = "derived", "its defaults"  # shown in place of a default


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles, which only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True)
class Setting:
    """One setting. `path` follows the nesting of the recipe with dots, without the numbers of list items.

    `kind` and `bounds` are in words. `default` is written as in a recipe, and None if the setting is
    required.
    """

    path: str
    kind: str
    default: str | None
    bounds: str
    description: str
    is_section: bool

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Section:
    """The settings of one model. `variant` names it where a section takes one of several models, and
    `same_as` is the path where the same model was listed before.
    """

    path: str
    variant: str
    about: str
    settings: tuple[Setting, ...]
    same_as: str | None


@cache
def of_models() -> Schema:
    """The schema of the models."""
    return Recipe.model_json_schema(schema_generator=_Untitled)


@cache
def sections() -> tuple[Section, ...]:
    """The recipe itself and then all its sections in order, each before the sections inside it."""
    return tuple(_walk(of_models(), "", "", {}))


def found_settings(path: str) -> list[Setting]:
    """The settings at a dotted path, one for each variant that has it. Ignores the numbers of items, as in
    `corpora[0].name`. Raises RecipeError for an unknown path, and names the nearest.
    """
    path = re.sub(r"\[\d*\]|\.\d+(?=\.|$)", "", path)
    settings = [setting for section in sections() for setting in section.settings]
    matches = [setting for setting in settings if setting.path == path]
    if not matches:
        known = [setting.path for setting in settings]
        hint = did_you_mean(path, known, "`python -m pipeline recipe --explain` lists the sections")
        if same_name := paths_of(path.rpartition(".")[2]):
            hint = f"did you mean {' or '.join(map(repr, same_name[:NEAREST]))}?"
        raise RecipeError(f"unknown setting {path!r}: {hint}")
    return matches


def paths_of(name: str) -> list[str]:
    """The paths of all settings with this name."""
    settings = (setting for section in sections() for setting in section.settings)
    return list(dict.fromkeys(setting.path for setting in settings if setting.name == name))


def _walk(model: Schema, path: str, variant: str, seen: dict[str, str]) -> Iterator[Section]:
    same_as = seen.setdefault(model["title"], path)
    names = {key: RECIPE_KEYS.get((model["title"], key), key) for key in model["properties"]}
    paths = {key: f"{path}.{name}" if path else name for key, name in names.items()}
    settings = tuple(
        _setting(paths[key], place, key in model.get("required", ()) or variant.startswith(f"{key}: "))
        for key, place in model["properties"].items()
    )
    yield Section(path, variant, model["description"], settings, same_as if same_as != path else None)
    if same_as != path:  # what is inside is listed there, too
        return
    for key, place in model["properties"].items():
        for child in _models(place):  # before those that are nested more deeply
            seen.setdefault(child["title"], paths[key])
    for key, place in model["properties"].items():
        inside = _models(place)
        for child in inside:
            yield from _walk(child, paths[key], _variant(child) if len(inside) > 1 else "", seen)


def _setting(path: str, place: Schema, required: bool) -> Setting:
    """`required` also for the setting that chooses a variant, though its model has a default."""
    models = _models(place)
    default = DERIVED
    if models and isinstance(place.get("default"), dict):
        default = SECTION
    elif "default" in place:
        default = as_yaml(place["default"])
    about = place.get("description") or models[0]["description"]
    return Setting(
        path, in_words(place), None if required else default, ", ".join(_bounds(place)), about, bool(models)
    )


def _models(place: Schema) -> list[Schema]:
    """The models of a value or of the items of a list."""
    if "$ref" in place:
        model = _referred(place)
        return [model] if "properties" in model else []
    inside = [
        *place.get("anyOf", ()),
        *place.get("oneOf", ()),
        *([place["items"]] if "items" in place else []),
    ]
    return [model for one in inside for model in _models(one)]


def _referred(place: Schema) -> Schema:
    return of_models()["$defs"][place["$ref"].rpartition("/")[2]]


def _variant(model: Schema) -> str:
    """`kind: files`, the key with only one possible value; without such a key, one of VARIANTS."""
    kinds = (f"{key}: {one['const']}" for key, one in model["properties"].items() if "const" in one)
    return next(kinds, None) or VARIANTS.get(model["title"], "")


def in_words(place: Schema, plural: bool = False) -> str:
    """A type as a reader knows it: `whole number`, `list of texts or null`."""
    if "anyOf" in place:
        words = [in_words(one, plural) for one in place["anyOf"]]
        if words[0] == WORDS["boolean"][0] and words[1] != "null":  # true, false or `auto`
            words[:1] = ["true", "false"]
        return _listed(words)
    if _models(place):
        return "list of sections" if "items" in place else "section"
    if "$ref" in place:
        place = _referred(place)
    if values := place.get("enum", [place["const"]] if "const" in place else []):
        return _listed([f"`{as_yaml(one)}`" for one in values])
    if "prefixItems" in place:
        return f"list of {len(place['prefixItems'])} {in_words(place['prefixItems'][0], plural=True)}"
    if "items" in place:
        return f"list of {in_words(place['items'], plural=True)}"
    if place.get("type") == "object":
        values = [*place.get("patternProperties", {}).values(), place.get("additionalProperties")]
        return f"mapping from text to {in_words(values[0] if isinstance(values[0], dict) else {})}"
    return WORDS[place.get("format") or place.get("type", "")][plural]


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def as_yaml(value: Any) -> str:
    """A value as a recipe writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:_}"
    if isinstance(value, float) and "e" in repr(value):  # YAML takes 1e-08 for text
        digits, _, power = repr(value).partition("e")
        return f"{digits if '.' in digits else f'{digits}.0'}e{int(power):+d}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_yaml, value))}]"
    return f'"{value}"' if isinstance(value, str) and value[:1] in "[{" else str(value)


def _bounds(place: Schema) -> list[str]:
    limits: dict[str, Any] = {}
    for one in (place, *place.get("anyOf", ())):
        if "prefixItems" not in one:
            limits |= one
    if "minimum" in limits and "maximum" in limits:
        bounds = [f"{as_yaml(limits['minimum'])} to {as_yaml(limits['maximum'])}"]
    else:
        bounds = [f"{word} {as_yaml(limits[name])}" for name, word in LIMITS.items() if name in limits]
    return [*bounds, "not empty"] if {"minLength", "minItems", "minProperties"} & limits.keys() else bounds
