"""The items of a benchmark, and their form on disk: JSON lines that the trainer reads."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.sources.errors import SourceError

# The accuracy that is compared with chance, of a benchmark that does not say which one is its own.
PER_CHARACTER = "accuracy_per_character"


class Question(BaseModel):
    """A question. `context` is one text, or one for each continuation; `gold` counts from 0. Other keys of a
    line, such as an id, are ignored.
    """

    model_config = ConfigDict(frozen=True)

    context: str | tuple[str, ...]
    continuations: tuple[str, ...] = Field(min_length=1)
    gold: int = Field(ge=0, strict=True)

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if not all(self.continuations):
            raise ValueError("a continuation is empty")
        if self.gold >= len(self.continuations):
            raise ValueError(f"gold is {self.gold}, but counts from 0 to {len(self.continuations) - 1}")
        if not isinstance(self.context, str) and len(self.context) != len(self.continuations):
            raise ValueError("a list of contexts has one for each continuation")
        return self

    @property
    def contexts(self) -> tuple[str, ...]:
        """One for each continuation."""
        return (self.context,) * len(self.continuations) if isinstance(self.context, str) else self.context


@dataclass(frozen=True)
class Benchmark:
    """`metric` is the accuracy that is compared with chance; None where items have no wrong answer."""

    name: str
    items: tuple[Question, ...]
    metric: str | None

    @cached_property
    def lines(self) -> str:
        """All items as JSON lines."""
        rows = (item.model_dump(mode="json") for item in self.items)
        return "".join(json.dumps(row) + "\n" for row in rows)

    @cached_property
    def sha256(self) -> str:
        """The hash of all that decides its scores."""
        return hashlib.sha256(f"{self.metric}\n{self.lines}".encode()).hexdigest()


def metric_of(items: Iterable[Question], usual: str) -> str | None:
    """`usual`, or None when an item has one continuation only."""
    return usual if all(len(item.continuations) > 1 for item in items) else None


def of_file(name: str, path: Path) -> Benchmark:
    """A benchmark of the user's own. Raises SourceError with file and line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SourceError(f"benchmark {name!r}: {path} cannot be read: {why}") from error
    items = tuple(_item(line, f"{path}:{row}") for row, line in enumerate(lines, start=1) if line.strip())
    if not items:
        raise SourceError(f"benchmark {name!r}: {path} holds no items")
    return Benchmark(name, items, metric_of(items, PER_CHARACTER))


def _item(line: str, where: str) -> Question:
    try:
        return Question.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        said = problem["msg"].removeprefix("Value error, ")
        raise SourceError(
            f"{where}: {f'{key}: ' if key else ''}{said}. A line is "
            '{"context": "The sky is", "continuations": [" blue", " green"], "gold": 0}'
        ) from None
