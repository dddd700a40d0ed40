"""The entries of a recipe that name the user's own code."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from pipeline.store.fingerprint import canonical_json
from pipeline.store.params import Params

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def encodable(params: dict[str, Any]) -> dict[str, Any]:
    """The same parameters. Raises ValueError for what cannot be part of a fingerprint."""
    try:
        canonical_json(params)
    except TypeError as error:
        raise ValueError(f"cannot be part of a fingerprint: {error}") from None
    return params


Arguments = Annotated[
    dict[str, Any],
    AfterValidator(encodable),
    Field(description="Keyword arguments, part of the fingerprint: numbers, texts, lists, mappings."),
]


class PluginParams(Params):
    """A function or class, its version and its parameters."""

    python: str = Field(min_length=1, description="`package.module:name` of a function or class.")
    version: str = Field(
        min_length=1,
        description="Part of the fingerprint: a new version runs the code again on every document. Raise it "
        "whenever the code gives other results.",
    )
    params: Arguments = Field({})
    name: str = Field("", description="Names the results; the name of the function or class when not set.")
    max_failed_share: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of a corpus's documents that the code may fail on with an exception. Each is set "
        "aside; above this share the run fails.",
    )

    @model_validator(mode="before")
    @classmethod
    def _named_after_the_code(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(python := values.get("python"), str):
            return {"name": re.split(r"[:.]", python)[-1], **values}
        return values

    @field_validator("name")
    @classmethod
    def _names_a_directory(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a filter: use letters, digits, '_' and '-'")
        return name


class FilterParams(PluginParams):
    """A filter that follows the built-in quality rules."""


class TransformParams(PluginParams):
    """A transform that rewrites texts between `raw` and `scrubbed`."""

    corpora: tuple[str, ...] | None = Field(
        None, min_length=1, description="Only these corpora; all of them when not set."
    )


def check_names(entries: tuple[PluginParams, ...], taken: set[str]) -> None:
    """Raises ValueError when two entries have one name, or one has a name that is `taken`."""
    seen = set(taken)
    for entry in entries:
        if entry.name in seen:
            raise ValueError(
                f"the name {entry.name!r} is in use already: give {entry.python!r} another `name`"
            )
        seen.add(entry.name)
