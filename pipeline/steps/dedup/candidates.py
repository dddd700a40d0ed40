"""Finds the documents that may be duplicates of one another. Reads the sorted runs of all parts once, and no
text.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa

from pipeline.stages import dedup
from pipeline.steps.dedup.components import Documents, LinkFile, components
from pipeline.steps.dedup.shuffle import (
    BITS,
    FILES,
    ROW_BYTES,
    TOGETHER,
    Slice,
    divide,
    remove,
    write_divided,
)
from pipeline.steps.dedup.signatures import SCALARS, Runs, Signed
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from pipeline.store.parquet import read_table
from trainer.system.durable import whole_file

# The file with the runs of a part, and the global row of its first document.
PartRun = tuple[StoredFile, int]
Keys = tuple[np.ndarray, np.ndarray]  # uint64, and the global rows of their documents

RANGE_KEYS = 8_000_000  # keys that a task sorts at a time, in about 0.4 GB
RUNS_TOGETHER = 4  # runs of one task when they are small, so that it opens each file once


def link(engine: Engine, signed: Sequence[Signed], scratch: Scratch, params: dedup.DedupParams) -> pa.Table:
    """The documents that share text or a band key with another, directly or through others, as MEMBER_SCHEMA.

    Of few documents in few parts, a task reads some of the runs of each part; else tasks first divide the
    keys of all runs by ranges. Memory: this process holds the linked documents; a worker holds one range.
    """
    filled = [piece for piece in signed if piece.rows]
    runs = [(piece.runs, piece.start) for piece in filled]
    documents = Documents(sum(piece.rows for piece in filled))
    links = candidates(engine, scratch, documents, runs, params.bands + 1)
    labels = components(engine, scratch, documents, links)
    members = [_Members(piece, documents.labels(labels, piece.start, piece.rows)) for piece in filled]
    input_bytes = sum(piece.part.files["signatures"].bytes for piece in filled)
    write_members = partial(_Members.write, documents=documents, scratch=scratch)
    tables = [dedup.MEMBER_SCHEMA.empty_table()]
    for written in engine.map(write_members, members, input_bytes=input_bytes, what="dedup candidates"):
        with pa.OSFile(os.fspath(written)) as file:
            tables.append(pa.ipc.open_file(file).read_all())
        written.path.unlink()
    return pa.concat_tables(tables)


def candidates(
    engine: Engine, scratch: Scratch, documents: Documents, runs: Sequence[PartRun], count: int
) -> Iterator[LinkFile]:
    """The links between documents with equal keys in any of the `count` runs."""
    size = ROW_BYTES * count * documents.total
    write_links = partial(_write_links, documents=documents, scratch=scratch)
    if documents.total <= RANGE_KEYS and len(runs) <= FILES:
        together = min(RUNS_TOGETHER, max(1, RANGE_KEYS // max(documents.total, 1)))
        numbers = [tuple(range(count)[first : first + together]) for first in range(0, count, together)]
        tasks = [RunKeys(some, tuple(runs)) for some in numbers]
        yield from engine.map(write_links, tasks, input_bytes=size, what="dedup candidates")
        return
    bits = (count * documents.total // RANGE_KEYS).bit_length()
    window = TOGETHER // (ROW_BYTES * count)  # documents
    groups = [
        _PartKeys(*key, tuple(run for _, run in some))
        for key, some in groupby(enumerate(runs), lambda one: (one[0] // FILES, one[1][1] // window))
    ]
    read = partial(_PartKeys.write, scratch=scratch, count=count, inside=min(BITS, bits))
    files = list(engine.map(read, groups, input_bytes=size, what="dedup keys"))
    divided = divide(engine, scratch, files, bits, size, "keys")
    ranges = [_RangeKeys(index, rows) for index, rows in enumerate(divided.slices)]
    yield from engine.map(write_links, ranges, input_bytes=size, what="dedup candidates")
    remove(divided.groups)


def _write_links(keys: "RunKeys | _RangeKeys", documents: Documents, scratch: Scratch) -> LinkFile:
    left, right = zip(*(dedup.candidate_pairs(*dedup.sort_band(*some)) for some in keys.read()), strict=True)
    return documents.write_links(scratch, keys.name, np.concatenate(left), np.concatenate(right))


@dataclass(frozen=True)
class RunKeys:
    """Some runs of all parts."""

    numbers: tuple[int, ...]
    runs: tuple[PartRun, ...]

    @property
    def name(self) -> str:
        return f"pairs-{self.numbers[0]}"

    def read(self) -> Iterator[Keys]:
        opened = [(Runs(file), start) for file, start in self.runs]
        for number in self.numbers:
            keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
            for runs, start in opened:
                keys.append(runs[number][0])
                rows.append(runs[number][1] + np.int64(start))
            yield np.concatenate(keys), np.concatenate(rows)


@dataclass(frozen=True)
class _PartKeys:
    """All runs of some parts."""

    number: int
    window: int
    runs: tuple[PartRun, ...]

    def write(self, scratch: Scratch, count: int, inside: int) -> StoredFile:
        keys, rows = zip(*RunKeys(tuple(range(count)), self.runs).read(), strict=True)
        table = pa.record_batch({"key": np.concatenate(keys), "row": np.concatenate(rows)})
        return write_divided(scratch, f"keys-{self.number}-{self.window}", table, 0, inside)


@dataclass(frozen=True)
class _RangeKeys:
    """A range of the keys of all runs. Keys of two runs are as unlikely to be equal as two of one."""

    index: int
    rows: Slice

    @property
    def name(self) -> str:
        return f"pairs-{self.index}"

    def read(self) -> Iterator[Keys]:
        table = self.rows.read()
        yield table.column("key").to_numpy(), table.column("row").to_numpy()


@dataclass(frozen=True)
class _Members:
    """The linked documents of a part, with the smallest row of their components."""

    piece: Signed
    labels: tuple[Slice, ...]

    def write(self, documents: Documents, scratch: Scratch) -> StoredFile:
        """Writes one table of MEMBER_SCHEMA."""
        path = scratch.path / f"members-{self.piece.start}.arrow"
        with whole_file(path) as temporary, pa.ipc.new_file(str(temporary), dedup.MEMBER_SCHEMA) as writer:
            writer.write_table(self._table(*documents.read(*self.labels)))
        return scratch.written(path)

    def _table(self, rows: np.ndarray, roots: np.ndarray) -> pa.Table:
        here = self.piece.among(rows)
        if here.start == here.stop:
            return dedup.MEMBER_SCHEMA.empty_table()
        rows, roots = rows[here], roots[here]
        scalars = read_table(self.piece.signatures, columns=SCALARS).take(pa.array(rows - self.piece.start))
        columns = {name: scalars.column(name) for name in SCALARS} | {
            "row": rows,
            "root": roots,
            "priority": pa.repeat(pa.scalar(self.piece.priority, pa.int32()), len(rows)),
        }
        schema = dedup.MEMBER_SCHEMA
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)
