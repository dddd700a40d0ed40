"""`decontamination:` of a recipe."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from pipeline.recipe.named_sources import anchored, repeated_name
from pipeline.sources import SourceConfig
from pipeline.stages import decontamination
from pipeline.store.params import Params


class EvaluationSet(Params):
    """One evaluation set: text that the model will be tested on."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Name of the set in reports: lower-case letters, digits and `_`.",
    )
    source: SourceConfig = Field(description="Where its text comes from, one of the source kinds.")


class Decontamination(decontamination.NgramParams):
    """Finds training documents that share a run of words with an evaluation set."""

    action: Literal["remove", "report"] = Field(
        "remove", description="Whether such documents are removed from the training text, or only reported."
    )
    sets: tuple[EvaluationSet, ...] = Field(
        min_length=1, description="The evaluation sets, each with a name and a source."
    )

    @property
    def ngrams(self) -> decontamination.NgramParams:
        """The settings that decide which documents match."""
        return decontamination.NgramParams(ngram=self.ngram, min_words=self.min_words)

    def anchored(self, directory: Path) -> "Decontamination":
        """A copy whose relative paths start at `directory`."""
        sets = tuple(
            entry.model_copy(update={"source": anchored(entry.source, directory)}) for entry in self.sets
        )
        return self.model_copy(update={"sets": sets})

    @field_validator("sets")
    @classmethod
    def _names_are_unique(cls, sets: tuple[EvaluationSet, ...]) -> tuple[EvaluationSet, ...]:
        if repeated := repeated_name(entry.name for entry in sets):
            raise ValueError(f"two evaluation sets are named {repeated!r}: rename one of them")
        return sets
