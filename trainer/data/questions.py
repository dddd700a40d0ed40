"""The questions of a benchmark, as JSON lines that a person or the pipeline wrote."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.system.errors import TrainerError


class Question(BaseModel):
    """A question. `context` is one text, or one for each continuation: mostly the same one, but Winogrande's
    differ and its continuations are the same. `gold` is the number of the right continuation, from 0. Other
    keys of a line, such as an id, are ignored.
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


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a file, one in each line. Raises TrainerError with file and line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainerError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    found = tuple(_question(line, f"{path}:{row}") for row, line in enumerate(lines, start=1) if line.strip())
    if not found:
        raise TrainerError(f"{path} holds no items")
    return found


def _question(line: str, where: str) -> Question:
    try:
        return Question.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        said = problem["msg"].removeprefix("Value error, ")
        raise TrainerError(
            f"{where}: {f'{key}: ' if key else ''}{said}. A line is "
            '{"context": "The sky is", "continuations": [" blue", " green"], "gold": 0}'
        ) from None
