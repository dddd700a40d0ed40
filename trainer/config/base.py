"""The base class of a run's configuration."""

import difflib
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

# A number in exponential notation, of a size that a setting can have.
WHOLE = re.compile(r"[+-]?\d+(\.\d+)?[eE]\+?\d\d?")


def absolute_path(path: Path) -> Path:
    """Raises ValueError for what can be none."""
    if "\0" in str(path):
        raise ValueError("must be a path, which holds no NUL character")
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # ~ of somebody unknown
        raise ValueError(f"{path}: {error}") from None


# Absolute, so that a stored configuration can be used from any directory.
AbsolutePath = Annotated[Path, AfterValidator(absolute_path)]


class Config(BaseModel):
    """Frozen. An unknown key is an error that names the nearest key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for key in values.keys() - cls.model_fields.keys():
                nearest = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                known = f"did you mean {nearest[0]!r}?" if nearest else f"use {', '.join(cls.model_fields)}"
                raise ValueError(f"unknown key {key!r}: {known}")
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


def _booleans(value: Any) -> Iterable[bool]:
    """Those in a list or a mapping, however deep."""
    if isinstance(value, bool):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _booleans(inner)


def _types(annotation: Any) -> set[Any]:
    """An annotation and all that it is made of."""
    return {annotation}.union(*map(_types, get_args(annotation)))


def _number(key: str, value: Any, annotation: Any) -> Any:
    """Refuses true and false for a number, and takes 1e6, which YAML reads as text, for a whole one."""
    kinds = {annotation, *get_args(annotation)}
    if not kinds & {int, float} or bool in kinds:
        inside = _types(annotation)
        if inside & {int, float} and bool not in inside and isinstance(value, dict | list | tuple):
            for boolean in _booleans(value):
                raise ValueError(f"{key} must hold numbers, not {str(boolean).lower()}")
        return value
    if isinstance(value, bool) and not any(value in get_args(kind) for kind in kinds):
        raise ValueError(f"{key} must be a number, not {str(value).lower()}")
    if isinstance(value, str) and WHOLE.fullmatch(value) and not kinds & {float, str}:
        number = Decimal(value)
        return int(number) if number == number.to_integral_value() else value
    return value
