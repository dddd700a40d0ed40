"""`evaluation:` of a recipe."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from pipeline.recipe.named_sources import repeated_name
from pipeline.sources.benchmarks.package import SETS
from pipeline.sources.benchmarks.source import NamedBenchmark
from pipeline.store.params import Params

# In place of evaluation sets: the benchmarks of the recipe.
BENCHMARKS = "benchmarks"


class EvaluationParams(Params):
    """What a trained model is measured by, besides the loss on held-out text."""

    benchmarks: tuple[NamedBenchmark, ...] = Field(
        (),
        description="Benchmarks that checkpoints answer: `easy`, `core` or a list of names, of which "
        "`python -m pipeline benchmark --list` shows all, and of files of your own, "
        "`{name: mine, path: mine.jsonl}`. An empty list measures none.",
    )

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

    def anchored(self, directory: Path) -> "EvaluationParams":
        """A copy whose relative paths start at `directory`."""
        benchmarks = tuple(one.anchored(directory) for one in self.benchmarks)
        return self.model_copy(update={"benchmarks": benchmarks})


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
    if not params.benchmarks:
        raise ValueError(
            "decontamination: benchmarks stands for those of evaluation.benchmarks, which has none"
        )
    named = [entry for one in sets for entry in (_sets(params.benchmarks) if one == BENCHMARKS else [one])]
    return {**recipe, "decontamination": {**section, "sets": named}}


def _sets(benchmarks: Iterable[NamedBenchmark]) -> list[dict[str, Any]]:
    return [{"name": one.title, "source": {"kind": "benchmark", **one.model_dump()}} for one in benchmarks]
