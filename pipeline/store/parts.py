"""One version made part by part: finished parts are reused, the engine makes the others, and all of them are
published together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.store.engine import Engine
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.versions import Draft, Part, Store, Version, Work

Counts = dict[str, int]
BatchResult = tuple[Mapping[str, pa.RecordBatch], Counts]  # the rows of each table, and what was counted


@dataclass(frozen=True)
class PartTask:
    """What one part is made from: `fingerprint` names the result, `inputs` are the files to read, `bytes`
    their size.
    """

    name: str
    fingerprint: str
    inputs: tuple[Path, ...]
    bytes: int


@dataclass(frozen=True)
class BatchStep:
    """A stage that works batch by batch, for the store and for plain files alike.

    `function` takes one batch of each input and returns the rows of each table in `schemas`, with counts. The
    counts named in `counted` are recorded even where they are 0. `columns` are all that `function` reads.
    """

    function: Callable[..., BatchResult]
    schemas: Mapping[str, pa.Schema]
    counted: tuple[str, ...] = ("documents",)
    columns: list[str] | None = None

    def write_part(self, task: PartTask, directory: Path) -> Part:
        """The part of a version: reads the files of `task` side by side, one batch of each at a time."""
        counts = dict.fromkeys(self.counted, 0)
        with PartWriter(directory, task.name, self.schemas) as writer:
            for inputs in zip(*(batches(path, self.columns) for path in task.inputs), strict=True):
                tables, counted = self.function(*inputs)
                for table, rows in tables.items():
                    writer.write(table, rows)
                add(counts, counted)
        return Part(task.name, task.fingerprint, writer.files, counts)


def derive(
    store: Store,
    engine: Engine,
    work: Work,
    tasks: Sequence[PartTask],
    function: Callable[[PartTask, Path], Part],
    watch: Callable[[Sequence[Part], Draft], None] | None = None,
    slower: int = 1,
) -> Version:
    """The version of `work`: `function(task, directory)` writes the files of one part below `directory` and
    returns it.

    `watch` is given the parts so far, after each one; what it raises ends the work before anything is
    published. `slower`: how many times the engine's usual seconds per byte `function` takes.
    """
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        finished = {task.name: draft.finished(task.name, task.fingerprint) for task in tasks}
        todo = [task for task in tasks if finished[task.name] is None]
        parts = [part for part in finished.values() if part is not None]
        input_bytes = slower * sum(task.bytes for task in todo)
        for part in engine.map(_Into(function, draft.path), todo, input_bytes=input_bytes, what=work.key):
            draft.keep(part)
            parts.append(part)
            if watch is not None:
                watch(parts, draft)
        return draft.publish(parts)


def part_tasks(work: Work, sources: Sequence[tuple[Version, str]]) -> list[PartTask]:
    """One task for each part of the first (version, table), reading the parts of the same name from all
    of them.
    """
    by_name = [({part.name: part for part in version.parts}, version, table) for version, table in sources]
    tasks = []
    for name in [name for name, part in by_name[0][0].items() if sources[0][1] in part.files]:
        found = [(version, parts[name], table) for parts, version, table in by_name]
        files = [part.files[table] for _, part, table in found]
        inputs = tuple(version.file(part, table) for version, part, table in found)
        tasks.append(
            PartTask(
                name,
                work.part_fingerprint([file.sha256 for file in files]),
                inputs,
                sum(file.bytes for file in files),
            )
        )
    return tasks


def tally(column: pa.Array | pa.ChunkedArray, prefix: str) -> Counts:
    """How often each value occurs, as counts named `prefix/value`, sorted by name."""
    counted = pc.value_counts(column.drop_null())
    return dict(sorted((f"{prefix}/{entry['values']}", entry["counts"]) for entry in counted.to_pylist()))


def add(totals: Counts, counts: Counts) -> None:
    """Adds counts in place."""
    for name, count in counts.items():
        totals[name] = totals.get(name, 0) + count


def text_bytes(documents: pa.RecordBatch) -> int:
    """UTF-8 bytes of the text column."""
    return pc.sum(pc.binary_length(documents.column("text"))).as_py() or 0


@dataclass(frozen=True)
class _Into:
    """`function` with its directory, picklable for worker processes."""

    function: Callable[[PartTask, Path], Part]
    directory: Path

    def __call__(self, task: PartTask) -> Part:
        return self.function(task, self.directory)
