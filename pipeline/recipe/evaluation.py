"""`evaluation:` and `decontamination:` of a recipe: benchmarks, and the text that a model is tested on."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from pipeline.sources import SourceConfig
from pipeline.sources.benchmarks.items import SETS
from pipeline.sources.benchmarks.source import NamedBenchmark
from pipeline.stages import decontamination
from pipeline.store.params import NAME, Params

# In place of evaluation sets: the benchmarks of the recipe.
BENCHMARKS = "benchmarks"


def repeated_name(names: Iterable[str]) -> str | None:
    """The first name in the alphabet that occurs more than once, if any."""
    return min((name for name, count in Counter(names).items() if count > 1), default=None)


class EvaluationText(Params):
    """A text that every checkpoint is scored on."""

    name: str = Field(pattern=NAME)
    """Name of the text in reports: lower-case letters, digits and `_`."""
    source: SourceConfig
    """Where it comes from, one of the source kinds."""
    max_bytes: int = Field(500_000, ge=1_000)
    """Bytes of the text that are scored, in windows of 1,024 that are drawn from all of it. More bytes give
    narrower intervals and take longer.
    """


class EvaluationParams(Params):
    """What a trained model is measured by, besides the loss on held-out text."""

    texts: tuple[EvaluationText, ...] = ()
    """Texts on which every checkpoint is scored in bits per byte, so that models with different corpora,
    filters or tokenizers can be compared.
    """
    benchmarks: tuple[NamedBenchmark, ...] = ()
    """Benchmarks that checkpoints answer: `easy`, `core`, or a list of names and of files of your own,
    `{name: mine, path: mine.jsonl}`. `python -m pipeline benchmark --list` shows all names. With an empty
    list, no benchmark is measured.
    """

    @field_validator("benchmarks", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return expanded([value] if isinstance(value, str) else value)

    @field_validator("benchmarks")
    @classmethod
    def _names_are_unique(cls, benchmarks: tuple[NamedBenchmark, ...]) -> tuple[NamedBenchmark, ...]:
        if repeated := repeated_name(one.title for one in benchmarks):
            raise ValueError(f"two benchmarks are named {repeated!r}: leave one of them out, or rename it")
        return benchmarks

    @model_validator(mode="after")
    def _titles_are_unique(self) -> "EvaluationParams":
        if repeated := repeated_name(self.titles):
            raise ValueError(f"two evaluation texts or benchmarks are named {repeated!r}: rename a text")
        return self

    @property
    def titles(self) -> list[str]:
        """The names of all that checkpoints are scored on."""
        return [*(one.title for one in self.benchmarks), *(text.name for text in self.texts)]


def expanded(entries: Any) -> Any:
    """Entries of a list with names as sections, and `easy` and `core` as their names."""
    if not isinstance(entries, list | tuple):
        return entries
    found: list[Any] = []
    for entry in entries:
        found += [{"name": name} for name in SETS.get(entry, (entry,))] if isinstance(entry, str) else [entry]
    return found


def with_benchmarks_as_sets(recipe: Any) -> Any:
    """The values of a recipe with its benchmarks for the word `benchmarks` in `decontamination`, which stands
    for the section, for its sets, or for some of them.
    """
    section = recipe.get("decontamination") if isinstance(recipe, dict) else None
    if section == BENCHMARKS:
        section = {"sets": BENCHMARKS}
    sets = section.get("sets") if isinstance(section, dict) else None
    if sets == BENCHMARKS:
        sets = [BENCHMARKS]
    if not isinstance(section, dict) or not isinstance(sets, list | tuple) or BENCHMARKS not in sets:
        return recipe
    try:
        params = EvaluationParams.model_validate(recipe.get("evaluation") or {})
    except ValidationError:  # which is reported at its own place
        return {**recipe, "decontamination": None}
    if not params.titles:
        raise ValueError(
            "decontamination: benchmarks stands for those of evaluation.benchmarks and for evaluation.texts, "
            "but there are none: add some, or leave out `decontamination`"
        )
    named = [entry for one in sets for entry in (_sets(params) if one == BENCHMARKS else [one])]
    return {**recipe, "decontamination": {**section, "sets": named}}


def _sets(params: EvaluationParams) -> list[dict[str, Any]]:
    benchmarks = {one.title: {"kind": "benchmark", **one.model_dump()} for one in params.benchmarks}
    sources = benchmarks | {text.name: text.source.model_dump() for text in params.texts}
    return [{"name": name, "source": source} for name, source in sources.items()]


class EvaluationSet(Params):
    """One evaluation set: text that the model will be tested on."""

    name: str = Field(pattern=NAME)
    """Name of the set in reports: lower-case letters, digits and `_`."""
    source: SourceConfig
    """Where its text comes from, one of the source kinds."""


class Decontamination(decontamination.NgramParams):
    """Finds training documents that share a run of words with an evaluation set."""

    action: Literal["remove", "report"] = "remove"
    """Whether such documents are removed from the training text, or only reported."""
    stock_phrase: int = Field(4, ge=1)
    """Four words in a row are a stock phrase, not part of a quote, if more than this many documents of a
    part share them with evaluation sets; in parts of more than 1,000 times as many documents, if more than
    one document in 1,000 does. A shared passage counts as a quote if at least 3 in 10 of its pieces of four
    words are rarer. With a large number, every shared passage is a quote.
    """
    sets: tuple[EvaluationSet, ...] = Field(min_length=1)
    """The evaluation sets, each with a name and a source."""

    @property
    def ngrams(self) -> decontamination.NgramParams:
        """The settings that decide which documents match."""
        return decontamination.NgramParams(ngram=self.ngram, min_words=self.min_words)

    @field_validator("sets")
    @classmethod
    def _names_are_unique(cls, sets: tuple[EvaluationSet, ...]) -> tuple[EvaluationSet, ...]:
        if repeated := repeated_name(entry.name for entry in sets):
            raise ValueError(f"two evaluation sets are named {repeated!r}: rename one of them")
        return sets
