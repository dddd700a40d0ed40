"""Rows that tasks leave to each other, by ranges of a key. Each row is written and read once a level; opened
files, bytes and tasks grow as the rows do, however many parts there are.

A file has a record batch for each range of keys, so that a reader fetches no more. Files are merged range by
range, until each range is small enough and in few files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from trainer.system.durable import whole_file

BITS = 7  # of the key that one level divides by: a task reads or writes at most 128 ranges
FILES = 256  # that a task reads its range from
TOGETHER = 128_000_000  # bytes of rows that a task brings together, in about four times the memory
ROW_BYTES = 16  # of a key and a row

Item = TypeVar("Item")
Written = tuple[StoredFile, int]  # a file with rows, and their bytes


@dataclass(frozen=True)
class Slice:
    """The rows of a range of keys: `count` record batches of each of some files, from number `index` on."""

    files: tuple[StoredFile, ...]
    index: int
    count: int = 1

    @property
    def name(self) -> str:
        """A name for files that are made of these rows. No other slice has the same name."""
        return f"{self.files[0].path.stem}-{self.index}"

    def read(self) -> pa.RecordBatch:
        return pa.concat_batches(self.batches())

    def batches(self) -> list[pa.RecordBatch]:
        """The record batches. One file is open at a time."""
        batches: list[pa.RecordBatch] = []
        for file in self.files:
            with file.open() as opened:
                reader = pa.ipc.open_file(opened)
                batches += map(reader.get_batch, range(self.index, self.index + self.count))
        return batches


NOTHING = Slice((), 0)


def grouped(items: Sequence[Item], together: int) -> list[Sequence[Item]]:
    return [items[first : first + together] for first in range(0, len(items), together)]


def write_divided(scratch: Scratch, name: str, rows: pa.RecordBatch, bits: int, before: int = 0) -> Written:
    """Writes rows with a column `key` (uint64), divided by `bits` bits of the key after the first `before`.
    There is a record batch for each value of these bits, of which one level takes BITS at most.
    """
    inside = min(BITS, bits)
    keys = rows.column("key").to_numpy() << np.uint64(before)
    places = (keys >> np.uint64(64 - inside)).astype(np.uint8)
    order = np.argsort(places, kind="stable")
    edges = np.searchsorted(places[order], np.arange((1 << inside) + 1))
    path = scratch.path / f"{name}.arrow"
    with whole_file(path) as temporary, pa.ipc.new_file(str(temporary), rows.schema) as writer:
        for start, end in pairwise(edges):
            writer.write_batch(rows.take(pa.array(order[start:end])))
    return scratch.written(path), rows.nbytes


def divide(
    engine: Engine, scratch: Scratch, written: Sequence[Written], bits: int, *, what: str, begun: int = 0
) -> tuple[list[Slice], int]:
    """Divides rows by the first `bits` bits of their key. `write_divided` has begun to divide them, by these
    bits or, if there are more, by `begun` of them. Removes the files that it merges. Returns the slices, and
    the bytes of all rows.
    """
    before = min(BITS, bits)
    count = 1 << max(0, begun - before)
    size = sum(of_file for _, of_file in written)
    files = tuple(file for file, _ in written)
    slices = [Slice(files, index * count, count) for index in range(1 << before)]
    while before < bits or any(len(one.files) > FILES for one in slices):
        inside = min(BITS, bits - before)
        together = max(2, TOGETHER * sum(len(one.files) for one in slices) // max(size, 1))
        tasks = [
            [replace(one, files=tuple(files)) for files in grouped(one.files, together)] for one in slices
        ]
        merge = partial(_merged, scratch=scratch, before=before, inside=inside)
        merged = engine.map(merge, list(chain.from_iterable(tasks)), input_bytes=size, what=what)
        groups = [tuple(next(merged) for _ in some) for some in tasks]
        remove(slices)
        slices = [Slice(group, index) for group in groups for index in range(1 << inside)]
        before += inside
    return slices, size


def _merged(rows: Slice, scratch: Scratch, before: int, inside: int) -> StoredFile:
    return write_divided(scratch, rows.name, rows.read(), inside, before)[0]


def remove(slices: Sequence[Slice]) -> None:
    """Removes the files of rows that nothing needs any more."""
    for path in {file.path for one in slices for file in one.files}:
        path.unlink(missing_ok=True)
