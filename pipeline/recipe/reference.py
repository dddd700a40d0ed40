"""Every setting of a recipe as its models describe it: what the reference page, `recipe --explain` and the
Launchpad's fields are made from.
"""

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.stages.tokenizer.params import ExistingTokenizer
from pipeline.store.errors import did_you_mean

# the keys whose names in a recipe differ from those in the model
RECIPE_KEYS: dict[tuple[type[BaseModel], str], str] = {(ExistingTokenizer, "source"): "from"}
WORDS: dict[Any, tuple[str, str]] = {
    int: ("whole number", "whole numbers"),
    float: ("number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
    Path: ("path", "paths"),
    Any: ("any value", "any values"),
}
NEAREST = 3
DERIVED, SECTION = "derived", "its defaults"  # shown in place of a default
_NONE = type(None)


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
    field: FieldInfo
    is_section: bool

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def is_worded(self) -> bool:
        """Whether `default` describes the value and is not the value itself."""
        return self.default in (DERIVED, SECTION)


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
def sections() -> tuple[Section, ...]:
    """The recipe itself and then all its sections in order, each before the sections inside it."""
    seen: dict[type[BaseModel], str] = {}
    return tuple(_walk(Recipe, "", "", seen))


def setting(path: str) -> Setting:
    """The setting at a dotted path, from the first variant that has it. Raises RecipeError if none has."""
    return found_settings(path)[0]


def found_settings(path: str) -> list[Setting]:
    """The settings at a dotted path, one for each variant that has it. Ignores the numbers of items, as in
    `corpora[0].name`. Raises RecipeError for an unknown path, and names the nearest.
    """
    path = re.sub(r"\[\d*\]|\.\d+(?=\.|$)", "", path)
    settings = [setting for section in sections() for setting in section.settings]
    matches = [setting for setting in settings if setting.path == path]
    if not matches:
        known = list(dict.fromkeys(setting.path for setting in settings))
        same_name = [name for name in known if name.rpartition(".")[2] == path.rpartition(".")[2]]
        hint = did_you_mean(path, known, "`python -m pipeline recipe --explain` lists the sections")
        if same_name:
            hint = f"did you mean {' or '.join(map(repr, same_name[:NEAREST]))}?"
        raise RecipeError(f"unknown setting {path!r}: {hint}")
    return matches


def _walk(
    model: type[BaseModel], path: str, variant: str, seen: dict[type[BaseModel], str]
) -> Iterator[Section]:
    same_as = seen.setdefault(model, path)
    keys = {name: RECIPE_KEYS.get((model, name), name) for name in model.model_fields}
    paths = {name: f"{path}.{key}" if path else key for name, key in keys.items()}
    settings = tuple(
        _setting(paths[name], field, selects=variant.startswith(f"{name}: "))
        for name, field in model.model_fields.items()
    )
    about = " ".join((model.__doc__ or "").split())
    yield Section(path, variant, about, settings, same_as if same_as != path else None)
    for name, field in model.model_fields.items():
        inside = models(field.annotation)
        for tag, child in inside.items():
            yield from _walk(child, paths[name], tag if len(inside) > 1 else "", seen)


def _setting(path: str, field: FieldInfo, selects: bool) -> Setting:
    """`selects`: this setting chooses the variant, so it is required even if the model has a default."""
    return Setting(
        path,
        in_words(field.annotation),
        None if selects else _default(field),
        ", ".join(_bounds(field)),
        field.description or "",
        field,
        is_section=bool(models(field.annotation)),
    )


def models(annotation: Any, tag: str = "") -> dict[str, type[BaseModel]]:
    """The models of a value or of the items of a list, each under the tag that distinguishes it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {tag or _kind(annotation): annotation}
    found: dict[str, type[BaseModel]] = {}
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        tag = next((one.tag for one in annotation.__metadata__ if isinstance(one, Tag)), tag)
        arguments = arguments[:1]
    if get_origin(annotation) is not Literal:
        for argument in arguments:
            found |= models(argument, tag)
    return found


def _kind(model: type[BaseModel]) -> str:
    """`kind: files`, the key with only one possible value; without such a key, the name of the model."""
    for name, field in model.model_fields.items():
        values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        if len(values) == 1:
            return f"{name}: {values[0]}"
    return model.__name__


def in_words(annotation: Any, plural: bool = False) -> str:
    """A type as a reader knows it: `whole number`, `list of texts or null`."""
    if models(annotation):
        return _sections_in_words(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return in_words(arguments[0], plural)
    if origin in (Union, types.UnionType):
        words = [in_words(one, plural) for one in arguments if one is not _NONE]
        if bool in arguments and len(words) > 1:  # true, false or `auto`
            words = ["true", "false", *(word for word in words if word != WORDS[bool][0])]
        return _listed([*words, *(["null"] if _NONE in arguments else [])])
    if origin is Literal:
        return _listed([f"`{as_yaml(one)}`" for one in arguments])
    if origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        return f"list of {in_words(arguments[0], plural=True)}"
    if origin is tuple:
        return f"list of {len(arguments)} {in_words(arguments[0], plural=True)}"
    if origin is dict:
        return f"mapping from {in_words(arguments[0])} to {in_words(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _listed([f"`{one.value}`" for one in annotation])
    return WORDS[annotation][plural]


def _sections_in_words(annotation: Any) -> str:
    is_list = get_origin(annotation) in (list, tuple)
    null = _NONE in get_args(annotation)
    return ("list of sections" if is_list else "section") + (" or null" if null else "")


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _default(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    if field.default_factory is not None:
        return DERIVED
    return SECTION if isinstance(field.default, BaseModel) else as_yaml(field.default)


def as_yaml(value: Any) -> str:
    """A value as a recipe writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:_}"
    if isinstance(value, float) and "e" in repr(value):  # YAML takes 1e-08 for text
        digits, _, power = repr(value).partition("e")
        return f"{digits if '.' in digits else f'{digits}.0'}e{int(power):+d}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    return f'"{value}"' if isinstance(value, str) and value[:1] in "[{" else str(value)


def _bounds(field: FieldInfo) -> list[str]:
    limits: dict[str, Any] = {}
    for one in _constraints(field.annotation, field.metadata):
        for name in ("ge", "gt", "le", "lt", "min_length"):
            if getattr(one, name, None) is not None:
                limits[name] = getattr(one, name)
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [f"{word} {as_yaml(limits[name])}" for name, word in words.items() if name in limits]
    if "ge" in limits and "le" in limits:
        bounds = [f"{as_yaml(limits['ge'])} to {as_yaml(limits['le'])}"]
    return [*bounds, "not empty"] if "min_length" in limits else bounds


def _constraints(annotation: Any, metadata: list[Any]) -> Iterator[Any]:
    for one in metadata:
        yield from one.metadata if isinstance(one, FieldInfo) else [one]
    if get_origin(annotation) is Annotated:
        yield from _constraints(get_args(annotation)[0], list(annotation.__metadata__))
    elif get_origin(annotation) in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _constraints(argument, [])
