"""Sorted runs of all parts -> which documents are candidates for duplicates of one another. Reads the runs
once, in slices, and no text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.stages import dedup
from pipeline.steps.dedup.signatures import SCALARS, Runs, Signed
from pipeline.store.engine import Engine

RANGE_KEYS = 8_000_000  # that a task sorts at a time, in about 0.4 GB
RUNS_TOGETHER = 4  # in one task, where they are small: each file is opened once for them


def link(engine: Engine, signed: Sequence[Signed], params: dedup.DedupParams) -> pa.Table:
    """The documents that share text or a band key with another, directly or through others, as MEMBER_SCHEMA.

    Here: 32 bytes for each document and the pairs of a few tasks. In a worker: one range of keys of one band.
    Of linked documents, the members.
    """
    total = sum(piece.rows for piece in signed)
    parents = dedup.singletons(total)
    ranges = -(-total // RANGE_KEYS)
    runs = tuple((piece.runs, piece.start) for piece in signed)
    together = min(RUNS_TOGETHER, max(1, RANGE_KEYS // max(total, 1)))
    groups = [
        tuple(range(first, min(first + together, params.bands + 1)))
        for first in range(0, params.bands + 1, together)
    ]
    tasks = [RunRange(runs, numbers, index, ranges) for numbers in groups for index in range(ranges)]
    for left, right in engine.map(
        RunRange.pairs,
        tasks,
        input_bytes=sum(path.stat().st_size for path, _ in runs),
        what="dedup candidates",
    ):
        dedup.unite(parents, left, right)
    roots = dedup.labels(parents)
    rows = dedup.linked(roots)
    tasks_of_parts = [
        _Members(piece, rows[piece.among(rows)], roots[rows[piece.among(rows)]]) for piece in signed
    ]
    wanted = [task for task in tasks_of_parts if len(task.rows)]
    input_bytes = sum(task.piece.signatures.stat().st_size for task in wanted)
    members = engine.map(_Members.table, wanted, input_bytes=input_bytes, what="dedup candidates")
    return pa.concat_tables([dedup.MEMBER_SCHEMA.empty_table(), *members])


@dataclass(frozen=True)
class RunRange:
    """One range of keys of the runs `numbers` of all parts: of `ranges` equal ones the `index`th. `runs`:
    (file, first global row).
    """

    runs: tuple[tuple[Path, int], ...]
    numbers: tuple[int, ...]
    index: int
    ranges: int

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The candidates among its documents, as `candidate_pairs`."""
        opened = [(Runs(path), start) for path, start in self.runs]
        found = [self._pairs(opened, number) for number in self.numbers]
        return np.concatenate([left for left, _ in found]), np.concatenate([right for _, right in found])

    def _pairs(self, opened: Sequence[tuple[Runs, int]], number: int) -> tuple[np.ndarray, np.ndarray]:
        found_keys, found_rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for runs, start in opened:
            keys, rows = runs[number]
            here = slice(self._edge(keys, self.index), self._edge(keys, self.index + 1))
            found_keys.append(keys[here])
            found_rows.append(rows[here] + np.int64(start))
        return dedup.candidate_pairs(*dedup.sort_band(np.concatenate(found_keys), np.concatenate(found_rows)))

    def _edge(self, keys: np.ndarray, index: int) -> int:
        """Where the range `index` starts in sorted keys."""
        return (
            len(keys)
            if index == self.ranges
            else int(np.searchsorted(keys, np.uint64((index << 64) // self.ranges)))
        )


@dataclass(frozen=True)
class _Members:
    """Some documents of a part, by global row, with the roots of their clusters."""

    piece: Signed
    rows: np.ndarray
    roots: np.ndarray

    def table(self) -> pa.Table:
        found = pq.read_table(self.piece.signatures, columns=SCALARS).take(
            pa.array(self.rows - self.piece.start)
        )
        priority = pa.repeat(pa.scalar(self.piece.priority, pa.int32()), len(self.rows))
        columns = {
            "row": self.rows,
            "root": self.roots,
            "priority": priority,
            **{name: found.column(name) for name in SCALARS},
        }
        return pa.table(
            {name: columns[name] for name in dedup.MEMBER_SCHEMA.names}, schema=dedup.MEMBER_SCHEMA
        )
