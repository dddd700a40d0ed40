"""Rows that tasks leave to each other, by ranges of a key. Each row is written and read once a level; opened
files, bytes and tasks grow as the rows do, however many parts there are.

A file has a record batch for each range of keys, so that a reader fetches its range and no more. Files are
merged, range by range, until each range is as small as a reader wants it, and in few files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count

import numpy as np
import pyarrow as pa

from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile
from trainer.system.durable import whole_file

BITS = 7  # of the key that one level divides by: a task reads or writes at most 128 ranges
FILES = 256  # that a task reads its range from
TOGETHER = 128_000_000  # bytes of rows that a task brings together, in about four times the memory
ROW_BYTES = 16  # of a key and a row


@dataclass(frozen=True)
class Slice:
    """Record batch `index` of some files."""

    files: tuple[StoredFile, ...]
    index: int

    def read(self) -> pa.RecordBatch:
        return pa.concat_batches(self.batches())

    def batches(self) -> list[pa.RecordBatch]:
        """One of each file, of which one is open at a time."""
        batches = []
        for file in self.files:
            with file.open() as opened:
                batches.append(pa.ipc.open_file(opened).get_batch(self.index))
        return batches


NOTHING = Slice((), 0)


@dataclass(frozen=True)
class Divided:
    """Rows by the leading bits of their key. `groups`: the files of each value of the first bits; each file
    divides its rows by `inside` more.
    """

    groups: tuple[tuple[StoredFile, ...], ...]
    inside: int

    @property
    def slices(self) -> list[Slice]:
        """The rows of each range of keys."""
        return [Slice(group, index) for group in self.groups for index in range(1 << self.inside)]


@dataclass(frozen=True)
class _Merge:
    name: str
    rows: Slice
    before: int
    inside: int

    def write(self, scratch: Scratch) -> StoredFile:
        return write_divided(scratch, self.name, self.rows.read(), self.before, self.inside)


def write_divided(scratch: Scratch, name: str, rows: pa.RecordBatch, before: int, inside: int) -> StoredFile:
    """Writes rows with a column `key` (uint64): a record batch for each value of the `inside` bits of the key
    that come after the first `before`.
    """
    keys = rows.column("key").to_numpy() << np.uint64(before)
    places = (keys >> np.uint64(64 - inside)).astype(np.uint8)
    order = np.argsort(places, kind="stable")
    edges = np.searchsorted(places[order], np.arange((1 << inside) + 1))
    rows = rows.take(pa.array(order))
    path = scratch.path / f"{name}.arrow"
    with whole_file(path) as temporary, pa.ipc.new_file(str(temporary), rows.schema) as writer:
        for index in range(1 << inside):
            writer.write_batch(rows.slice(edges[index], edges[index + 1] - edges[index]))
    return scratch.written(path)


def divide(
    engine: Engine, scratch: Scratch, files: Sequence[StoredFile], bits: int, size: int, what: str
) -> Divided:
    """Divides the rows of `files` by the first `bits` bits of their key, after `write_divided` did by as many
    of these as go into a file. `size`: bytes of the rows. Removes the files that it merges.
    """
    divided, before = Divided((tuple(files),), min(BITS, bits)), min(BITS, bits)
    for level in count():
        if before == bits and max(map(len, divided.groups)) <= FILES:
            break
        slices = divided.slices
        inside = min(BITS, bits - before)
        together = max(2, TOGETHER * sum(len(one.files) for one in slices) // max(size, 1))
        tasks = [
            _Merge(
                f"{what}-{level}-{number}-{first}",
                Slice(one.files[first : first + together], one.index),
                before,
                inside,
            )
            for number, one in enumerate(slices)
            for first in range(0, len(one.files), together)
        ]
        merged = engine.map(
            partial(_Merge.write, scratch=scratch), tasks, input_bytes=size, what=f"dedup {what}"
        )
        groups = [tuple(next(merged) for _ in range(0, len(one.files), together)) for one in slices]
        remove(divided.groups)
        divided, before = Divided(tuple(groups), inside), before + inside
    return divided


def remove(groups: Iterable[Iterable[StoredFile]]) -> None:
    """The files are not needed any more."""
    for file in chain.from_iterable(groups):
        file.path.unlink(missing_ok=True)
