"""Makes a version part by part: reuses finished parts, the engine makes others, publishes all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.engines.local import Engine
from pipeline.store.files import Files, StoredFile
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import PartWriter, batches, kept_batches
from pipeline.store.store import Store
from pipeline.store.work import Work

Counts = dict[str, int]
BatchResult = tuple[Mapping[str, pa.RecordBatch], Counts]  # the rows of each table, and what was counted


@dataclass(frozen=True)
class PartTask:
    """The work for one part: the files to read, their size in bytes and the fingerprint of the result."""

    name: str
    fingerprint: str
    inputs: tuple[StoredFile, ...]
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
        """Writes one part of a version. Reads the files of `task` in step, one batch of each at a time."""
        counts = dict.fromkeys(self.counted, 0)
        with PartWriter(directory, task.name, self.schemas) as writer:
            for tables, counted in self.results(task.inputs):
                for table, rows in tables.items():
                    writer.write(table, rows)
                add(counts, counted)
        return Part(task.name, task.fingerprint, writer.files, counts)

    def results(self, inputs: Sequence[StoredFile]) -> Iterator[BatchResult]:
        """What `function` returns for each batch of the files."""
        for each in zip(*(batches(path, self.columns) for path in inputs), strict=True):
            yield self.function(*each)


def derive(
    store: Store,
    engine: Engine,
    work: Work,
    tasks: Sequence[PartTask],
    function: Callable[[PartTask, Path], Part],
    *,
    watch: Callable[[Sequence[Part], Draft], None] | None = None,
    slower: int = 1,
    own: Sequence[str] = (),
) -> Version:
    """Makes the version of `work`, or finds it. `function(task, directory)` writes the files of one part
    below the directory and returns the part.

    `watch` gets the parts finished so far after each part; an exception from it ends the work before anything
    is published. `slower`: how many times the engine's usual seconds per byte `function` takes. `own`: the
    user's code that it calls.
    """
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        finished = {task.name: draft.finished(task.name, task.fingerprint) for task in tasks}
        todo = [task for task in tasks if finished[task.name] is None]
        made = [part for part in finished.values() if part is not None]
        write = partial(put_parts, function=function, directory=draft.path, files=store.files)
        input_bytes = slower * sum(task.bytes for task in todo)
        for part in engine.map(write, todo, input_bytes=input_bytes, what=work.key, own=own):
            draft.keep(part)
            made.append(part)
            if watch is not None:
                watch(made, draft)
        by_name = {part.name: part for part in made}
        return draft.publish([by_name[task.name] for task in tasks])


def put_parts(task: Any, function: Callable[..., Part], directory: Path, files: Files) -> Part:
    """`function(task, directory)`. The worker that wrote a part puts it where others read it."""
    part = function(task, directory=directory)
    files.put_files(directory, {file.path: file.sha256 for file in part.files.values()})
    return part


def kept_documents(
    store: Store, corpus: str, columns: Sequence[str] = ("id", "text")
) -> Iterator[pa.RecordBatch]:
    """The documents of a corpus that quality and dedup keep, batch by batch, in a fixed order. Their tables
    select them while reading: no copy is stored. `columns` must include `id`.
    """
    for part in kept_parts(store, corpus):
        yield from kept_batches(part.documents, part.verdicts, list(columns))


@dataclass(frozen=True)
class KeptPart:
    """The documents of a part, in a file of `bytes`, and the tables of which each has to keep them."""

    name: str
    documents: StoredFile
    verdicts: tuple[StoredFile, ...]
    bytes: int


def kept_parts(store: Store, corpus: str) -> Iterator[KeptPart]:
    """What `kept_documents` reads, part by part."""
    scrubbed, quality, dedup = map(store.current, (*keys.judged(corpus), keys.DEDUP))
    verdicts = {part.name: quality.file(part, "verdicts") for part in quality.parts}
    decisions = {part.name: dedup.file(part, "decisions") for part in dedup.parts}
    for part in scrubbed.parts:
        tables = verdicts[part.name], decisions[keys.DecidedPart(corpus, part.name).name]
        documents = scrubbed.file(part, "documents")
        yield KeptPart(part.name, documents, tables, part.files["documents"].bytes)


def part_tasks(work: Work, sources: Sequence[tuple[Version, str]]) -> list[PartTask]:
    """A task for each part of the first (version, table): it reads that part of every (version, table)."""
    by_name = [{part.name: part for part in version.parts} for version, _ in sources]
    tasks = []
    for name in [part.name for part in sources[0][0].parts if sources[0][1] in part.files]:
        parts = [by_name_of_one[name] for by_name_of_one in by_name]
        read = [(version, part, table) for part, (version, table) in zip(parts, sources, strict=True)]
        files = [part.files[table] for _, part, table in read]
        paths = tuple(version.file(part, table) for version, part, table in read)
        fingerprint = work.part_fingerprint([file.sha256 for file in files])
        tasks.append(PartTask(name, fingerprint, paths, sum(file.bytes for file in files)))
    return tasks


def tally(column: pa.Array | pa.ChunkedArray, prefix: str) -> Counts:
    """How often each value but null occurs, as counts named `prefix/value` and sorted by name."""
    counted = pc.value_counts(column.drop_null())
    return dict(sorted((f"{prefix}/{entry['values']}", entry["counts"]) for entry in counted.to_pylist()))


def add(totals: Counts, counts: Counts) -> None:
    """Adds counts in place."""
    for name, count in counts.items():
        totals[name] = totals.get(name, 0) + count


def text_bytes(documents: pa.RecordBatch) -> int:
    """UTF-8 bytes of the text column."""
    return pc.sum(pc.binary_length(documents.column("text"))).as_py() or 0
