"""The entries of a recipe that name the user's own code."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from pipeline.plugins.loading import load
from pipeline.store.fingerprint import canonical_json
from pipeline.store.params import Anchored, Params, form

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
FASTTEXT = "pipeline.stages.fasttext.filter:Probability"
OWN_MODEL, OWN_SCORE = "quality_model", "pipeline.stages.quality_model:Score"


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

    python: str = Field(min_length=1)
    """`package.module:name` of a function or class."""
    version: str = Field(min_length=1)
    """Part of the fingerprint: a new version runs the code again on every document. Raise it whenever the
    code gives other results.
    """
    params: Arguments = Field({})
    name: str = ""
    """Name of the results. When not set, the name of the function or class."""
    max_failed_share: float = Field(0.01, ge=0, le=1)
    """Share of a corpus's documents that the code may fail on with an exception. Each is set aside; above
    this share the run fails.
    """

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


class FastTextParams(Anchored):
    """A fastText classifier as a filter, without code of your own. What it measures is stored, so that
    another `min` or `top` reads no text.
    """

    name: str = Field(pattern=form(f"^{NAME.pattern}$", "letters, digits, `_` and `-`, such as `my-filter`"))
    """Name of the filter and of its results."""
    fasttext: str = Field(min_length=1)
    """Path of a fastText classifier, `.bin` or `.ftz`; the fingerprint has its content. The word
    `quality_model` stands for the classifier of that section of the recipe; its label is `__label__positive`.
    """
    label: str = Field(min_length=1)
    """A label as in the model, such as `__label__hq`."""
    min: float = Field(0, ge=0, le=1)
    """Least probability (0 to 1) of the label, of the whole text as one line."""
    top: float | None = Field(None, gt=0, lt=1)
    """Share to keep of the documents of each corpus that are in `languages`."""
    max_failed_share: ClassVar[float] = 0  # as that of a filter in Python

    @property
    def python(self) -> str:
        return OWN_SCORE if self.fasttext == OWN_MODEL else FASTTEXT

    @property
    def version(self) -> str:
        return load(self.python).version  # type: ignore[attr-defined]

    @property
    def file(self) -> Path:
        return self.located(self.fasttext)

    @property
    def params(self) -> dict[str, Any]:
        return {"model": str(self.file), "label": self.label, "min": self.min}


# Errors name these as the location, though the user wrote neither.
FILTER_KINDS = OWN_CODE, CLASSIFIER = "code of your own", "fastText classifier"


def _kind(value: Any) -> str:
    is_classifier = isinstance(value, FastTextParams) or (isinstance(value, dict) and "fasttext" in value)
    return CLASSIFIER if is_classifier else OWN_CODE


FilterChoice = Annotated[
    Annotated[FilterParams, Tag(OWN_CODE)] | Annotated[FastTextParams, Tag(CLASSIFIER)], Discriminator(_kind)
]
Entry = PluginParams | FastTextParams


class TransformParams(PluginParams):
    """A transform that rewrites texts between `raw` and `scrubbed`."""

    corpora: tuple[str, ...] | None = Field(None, min_length=1)
    """The corpora whose texts are rewritten. When not set, all."""


def check_names(entries: Sequence[Entry], taken: set[str]) -> None:
    """Raises ValueError when two entries have one name, or one has a name that is `taken`."""
    seen = set(taken)
    for entry in entries:
        if entry.name in seen:
            raise ValueError(
                f"the name {entry.name!r} is in use already: give {entry.python!r} another `name`"
            )
        seen.add(entry.name)
