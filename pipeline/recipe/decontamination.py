"""`decontamination:` of a recipe."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from pipeline.sources import SourceConfig
from pipeline.sources.listing import Paths
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
        """What decides which documents are hit."""
        return decontamination.NgramParams(ngram=self.ngram, min_words=self.min_words)

    def anchored(self, directory: Path) -> "Decontamination":
        """The same, with relative paths starting at `directory`."""
        sets = tuple(
            one.model_copy(update={"source": one.source.anchored(directory)})
            if isinstance(one.source, Paths)
            else one
            for one in self.sets
        )
        return self.model_copy(update={"sets": sets})

    @field_validator("sets")
    @classmethod
    def _names_are_unique(cls, sets: tuple[EvaluationSet, ...]) -> tuple[EvaluationSet, ...]:
        names = [one.name for one in sets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two evaluation sets are named {twice[0]!r}; every set needs a name of its own")
        return sets
