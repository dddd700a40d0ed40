"""Finds the documents that may be duplicates of one another. Reads the sorted runs of all parts once, in
slices, and no text.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from pipeline.stages import dedup
from pipeline.steps.dedup.signatures import SCALARS, Runs, Signed
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from pipeline.store.parquet import read_table
from trainer.system.durable import whole_file

# For each part the file with its runs, and the global row of its first document.
PartRuns = Sequence[tuple[StoredFile, int]]

RANGE_KEYS = 8_000_000  # keys that a task sorts at a time, in about 0.4 GB
RUNS_TOGETHER = 4  # runs of one task when they are small, so that it opens each file once


def link(engine: Engine, signed: Sequence[Signed], scratch: Scratch, params: dedup.DedupParams) -> pa.Table:
    """The documents that share text or a band key with another, directly or through others, as MEMBER_SCHEMA.

    Workers leave pairs and linked documents in files in `scratch`, which this process reads and deletes.
    Memory: this process holds 32 bytes for each document, the pairs of a task and the linked documents; a
    worker holds one range of keys of one band.
    """
    total = sum(piece.rows for piece in signed)
    ranges = -(-total // RANGE_KEYS)
    runs = tuple((piece.runs, piece.start) for piece in signed)
    together = min(RUNS_TOGETHER, max(1, RANGE_KEYS // max(total, 1)))
    numbers = range(params.bands + 1)
    groups = [tuple(numbers[first : first + together]) for first in numbers[::together]]
    tasks = [RunRange(group, index, ranges) for group in groups for index in range(ranges)]
    input_bytes = sum(piece.part.files["runs"].bytes for piece in signed)
    parents = np.arange(total)
    write = partial(RunRange.write, runs=runs, scratch=scratch)
    for pairs in engine.map(write, tasks, input_bytes=input_bytes, what="dedup candidates"):
        dedup.unite(parents, *np.load(pairs))
        pairs.path.unlink()
    roots = dedup.labels(parents)
    linked = dedup.linked(roots)
    members = []
    for piece in signed:
        rows = linked[piece.among(linked)]
        if len(rows):
            members.append(_Members(piece, rows, roots[rows]))
    input_bytes = sum(task.piece.part.files["signatures"].bytes for task in members)
    write_members = partial(_Members.write, scratch=scratch)
    tables = [dedup.MEMBER_SCHEMA.empty_table()]
    for written in engine.map(write_members, members, input_bytes=input_bytes, what="dedup candidates"):
        with pa.OSFile(os.fspath(written)) as file:
            tables.append(pa.ipc.open_file(file).read_all())
        written.path.unlink()
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class RunRange:
    """The keys of some runs that fall into range `index` of `ranges` equal ones, from all parts.

    `numbers`: which runs of each part.
    """

    numbers: tuple[int, ...]
    index: int
    ranges: int

    def write(self, runs: PartRuns, scratch: Scratch) -> StoredFile:
        """Writes the pairs as one int64 array [2, pairs]."""
        path = scratch.path / f"pairs-{self.numbers[0]:05d}-{self.index:05d}.npy"
        with whole_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, np.stack(self.pairs(runs)))
        return scratch.written(path)

    def pairs(self, runs: PartRuns) -> tuple[np.ndarray, np.ndarray]:
        """The candidate pairs of these keys, as `candidate_pairs` returns them."""
        opened = [(Runs(file), start) for file, start in runs]
        left, right = zip(*(self._pairs(opened, number) for number in self.numbers), strict=True)
        return np.concatenate(left), np.concatenate(right)

    def _pairs(self, opened: Sequence[tuple[Runs, int]], number: int) -> tuple[np.ndarray, np.ndarray]:
        all_keys, all_rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for runs, start in opened:
            keys, rows = runs[number]
            here = slice(self._edge(keys, self.index), self._edge(keys, self.index + 1))
            all_keys.append(keys[here])
            all_rows.append(rows[here] + np.int64(start))
        return dedup.candidate_pairs(*dedup.sort_band(np.concatenate(all_keys), np.concatenate(all_rows)))

    def _edge(self, keys: np.ndarray, index: int) -> int:
        """Where the range `index` starts in sorted keys."""
        if index == self.ranges:
            return len(keys)
        return int(np.searchsorted(keys, np.uint64((index << 64) // self.ranges)))


@dataclass(frozen=True)
class _Members:
    """The linked documents of a part, by global row, with the roots of their clusters."""

    piece: Signed
    rows: np.ndarray
    roots: np.ndarray

    def write(self, scratch: Scratch) -> StoredFile:
        """Writes one table of MEMBER_SCHEMA."""
        path = scratch.path / f"members-{self.piece.start}.arrow"
        with whole_file(path) as temporary, pa.ipc.new_file(str(temporary), dedup.MEMBER_SCHEMA) as writer:
            writer.write_table(self._table())
        return scratch.written(path)

    def _table(self) -> pa.Table:
        local = pa.array(self.rows - self.piece.start)
        scalars = read_table(self.piece.signatures, columns=SCALARS).take(local)
        columns = {name: scalars.column(name) for name in SCALARS} | {
            "row": self.rows,
            "root": self.roots,
            "priority": pa.repeat(pa.scalar(self.piece.priority, pa.int32()), len(self.rows)),
        }
        schema = dedup.MEMBER_SCHEMA
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)
