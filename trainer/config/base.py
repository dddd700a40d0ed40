"""The base class of a run's configuration."""

import ast
import inspect
import re
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trainer.system.errors import did_you_mean

# A number in exponential notation, of a size that a setting can have.
WHOLE = re.compile(r"[+-]?\d+(\.\d+)?[eE]\+?\d\d?")


def absolute_path(path: Path) -> Path:
    """The path, made absolute. Raises ValueError for text that cannot be a path."""
    if "\0" in str(path):
        raise ValueError("must be a path, which holds no NUL character")
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # ~ of somebody unknown
        raise ValueError(f"{path}: {error}") from None


def whole_text(text: str) -> str:
    """Raises ValueError for text that UTF-8 cannot hold: half of a pair of surrogates, as JSON that cuts an
    emoji has it, or a byte of another encoding on the command line.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"must be text in UTF-8, but character {error.start + 1} is not valid: {text[error.start]!a}"
        ) from None
    return text


# Absolute, so that a stored configuration can be used from any directory.
AbsolutePath = Annotated[Path, AfterValidator(absolute_path)]
WholeText = Annotated[str, AfterValidator(whole_text)]


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The descriptions of a model's settings: the docstring below each. They are read when somebody asks for
    them, since reading them when the models are made would cost each command 45 ms.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Config):
            found |= _docstrings(base)
    return {name: about for name, about in found.items() if name in model.model_fields}


@cache  # parsing takes milliseconds, and the Launchpad asks for each of its fields
def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    (parsed,) = ast.parse(inspect.getsource(model)).body
    found = {}
    for setting, about in pairwise(cast(ast.ClassDef, parsed).body):
        match setting, about:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                found[name] = " ".join(words.split())
    return found


class Config(BaseModel):
    """Frozen. An unknown key is an error that names the nearest key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        model = handler.resolve_ref_schema(schema)
        if about := model.get("description"):  # in one line, as editors show it
            model["description"] = " ".join(about.split())
        for name, about in descriptions(cls).items():
            model["properties"][cls.model_fields[name].alias or name]["description"] = about
        return schema

    def with_derived(self, **values: Any) -> Self:
        """A copy with `values` that follow from other settings. They are not in `model_fields_set`, which
        holds what a person wrote: whoever dumps with `exclude_unset` and changes a setting derives them anew.
        """
        copy = self.model_copy(update=values)
        copy.__pydantic_fields_set__.difference_update(values.keys() - self.model_fields_set)
        return copy

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for key in values.keys() - cls.model_fields.keys():
                hint = did_you_mean(str(key), cls.model_fields, f"use {', '.join(cls.model_fields)}")
                raise ValueError(f"unknown key {key!r}: {hint}")
        return values

    @model_validator(mode="before")
    @classmethod
    def _take_numbers_as_written(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            key: _number(key, value, cls.model_fields[key].annotation) if key in cls.model_fields else value
            for key, value in values.items()
        }


def _number(key: str, value: Any, annotation: Any) -> Any:
    """Refuses true and false for a number, and takes 1e6, which YAML reads as text, for a whole one."""
    kinds = {annotation, *get_args(annotation)}
    if not kinds & {int, float} or bool in kinds:
        return value
    if isinstance(value, bool) and not any(value in get_args(kind) for kind in kinds):
        raise ValueError(f"{key} must be a number, not {str(value).lower()}")
    if isinstance(value, str) and WHOLE.fullmatch(value) and not kinds & {float, str}:
        number = Decimal(value)
        return int(number) if number == number.to_integral_value() else value
    return value
