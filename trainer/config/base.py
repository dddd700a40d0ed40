"""The base class of a run's configuration."""

import difflib
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

# Absolute, so that a stored configuration can be used from any directory.
AbsolutePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class Config(BaseModel):
    """Frozen. An unknown key is an error that names the nearest key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for key in values.keys() - cls.model_fields.keys():
                nearest = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                known = f"did you mean {nearest[0]!r}?" if nearest else f"use {', '.join(cls.model_fields)}"
                raise ValueError(f"unknown key {key!r}: {known}")
        return values
