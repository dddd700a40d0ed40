"""The base class of a run's configuration."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from trainer.system.errors import did_you_mean

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

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

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
