"""Which documents hang together by links between two of them, directly or through others: found by this
process while documents are few, else in rounds of tasks that each hold the links of a range of documents.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa

from pipeline.stages import dedup
from pipeline.steps.dedup.shuffle import BITS, Slice, Written, divide, remove, write_divided
from pipeline.store.engines.local import Engine
from pipeline.store.files import Scratch, StoredFile

DOCUMENTS_TOGETHER = 8_000_000  # that this process links, in 24 bytes each
RANGE_BITS = 19  # of the rows of a range: 0.1 GB of links, where a document has a dozen


@dataclass(frozen=True)
class Documents:
    """All documents, by their global rows, and how tasks divide them. `bits`: the leading bits of a row that
    name its range; 0 where the run links all.
    """

    total: int
    bits: int

    @classmethod
    def of(cls, total: int) -> Self:
        return cls(total, max(0, total.bit_length() - RANGE_BITS) if total > DOCUMENTS_TOGETHER else 0)

    @property
    def _shift(self) -> int:
        return 64 - self.total.bit_length()

    def write_links(self, scratch: Scratch, name: str, left: np.ndarray, right: np.ndarray) -> Written:
        """Writes links between documents. If documents are divided by range, both get the link."""
        if self.bits:
            left, right = np.concatenate([left, right]), np.concatenate([right, left])
        return write_divided(scratch, name, self._table(left, right), self.bits)

    def write_labels(self, scratch: Scratch, name: str, rows: np.ndarray, labels: np.ndarray) -> StoredFile:
        """The smallest row of the component of each document of a range that has links."""
        return write_divided(scratch, f"labels-{name}", self._table(rows, labels), BITS, self.bits)[0]

    def labels(self, files: Sequence[StoredFile], start: int, rows: int) -> tuple[Slice, ...]:
        """The slices that hold the labels of `rows` documents from `start` on."""
        ends = (start << self._shift, start + rows - 1 << self._shift)
        first, last = (end >> 64 - self.bits - BITS for end in ends)
        return tuple(Slice((files[at >> BITS],), at % (1 << BITS)) for at in range(first, last + 1))

    def read(self, *slices: Slice) -> tuple[np.ndarray, np.ndarray]:
        """What was written: documents, and for each document the linked one, or its label."""
        table = pa.concat_batches([batch for one in slices for batch in one.batches()])
        keys = table.column("key").to_numpy()
        return (keys >> np.uint64(self._shift)).astype(np.int64), table.column("row").to_numpy()

    def _table(self, rows: np.ndarray, others: np.ndarray) -> pa.RecordBatch:
        return pa.record_batch({"key": rows.astype(np.uint64) << np.uint64(self._shift), "row": others})


def components(
    engine: Engine, scratch: Scratch, documents: Documents, links: Iterable[Written]
) -> list[StoredFile]:
    """The labels of all documents that have links, a file for each range of documents. Removes the links."""
    if not documents.bits:
        return [_united(scratch, documents, links)]
    settled = False
    while not settled:
        ranges, size = divide(engine, scratch, list(links), documents.bits, what="dedup links")
        step = partial(_step, scratch=scratch, documents=documents)
        results = list(engine.map(step, ranges, input_bytes=size, what="dedup components"))
        remove(ranges)
        links, labels, all_settled = zip(*results, strict=True)
        settled = all(all_settled)
        remove([Slice(tuple(file for file, _ in links) if settled else labels, 0)])
    return list(labels)


def _united(scratch: Scratch, documents: Documents, links: Iterable[Written]) -> StoredFile:
    parents = np.arange(documents.total)
    for file, _ in links:
        part = Slice((file,), 0)
        dedup.unite(parents, *documents.read(part))
        remove([part])
    roots = dedup.labels(parents)
    rows = dedup.linked(roots)
    return documents.write_labels(scratch, "all", rows, roots[rows])


def _step(rows: Slice, scratch: Scratch, documents: Documents) -> tuple[Written, StoredFile, bool]:
    """Writes the links of the next round for a range. Returns them, the smallest row that each row of the
    range knows of, and whether nothing has changed, so that these are its labels.
    """
    found = dedup.nearest(*documents.read(rows))
    links = documents.write_links(scratch, rows.name, found.left, found.right)
    return links, documents.write_labels(scratch, rows.name, found.rows, found.smallest), found.settled
