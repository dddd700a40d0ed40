"""Cuts a stream of documents into parts by their ids: a change moves only the cuts beside it."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.documents import BATCH_BYTES

SMALLEST_PART, LARGEST_PART = 1 / 2, 9 / 8  # what a part holds, in `part_bytes`
ROW_GROUPS = 8  # that a part of `part_bytes` has at least
PIECES = 64  # of a part, in which documents are looked at
HEX_DIGITS = 16


def numbered(stream: Iterable[pa.RecordBatch], part_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The documents in order, each batch with the number of its part.

    The next part begins with the document that has the smallest id among those it can begin with. Two
    readings that once cut at the same document cut alike from there on. Holds these documents in memory, five
    eighths of a part.
    """
    least, most = int(SMALLEST_PART * part_bytes) or 1, int(LARGEST_PART * part_bytes)
    number = size = 0  # of the part that is being filled
    held = pa.table({})
    for batch in _together(stream, part_bytes // PIECES):
        held = pa.concat_tables([held, pa.table(batch)]) if len(held) else pa.table(batch)
        while len(held):
            ends = np.cumsum(np.concatenate(list(map(_text_sizes, held.to_batches()))))
            before = np.concatenate([[0], ends])
            stop = int(np.searchsorted(before[:-1], least - size))
            if stop == 0 and size + ends[-1] <= most:
                break
            if begins := stop == 0:
                last = int(np.searchsorted(before[:-1], most - size, side="right"))
                stop = int(
                    np.argmin(np.concatenate(list(map(id_prefixes, held.to_batches())))[: max(last, 1)])
                )
            yield from ((number, piece) for piece in held.slice(0, stop).to_batches())
            number, size = (number + 1, 0) if begins else (number, size + int(before[stop]))
            held = held.slice(stop)
    yield from ((number, piece) for piece in held.to_batches())


def _together(stream: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.RecordBatch]:
    """The documents in batches with so many bytes of text: a small file is a batch, and a part has many."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in stream:
        waiting.append(batch)
        size += int(_text_sizes(batch).sum())
        if size >= least:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def row_groups(batches: Iterable[pa.RecordBatch], part_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches that depend on nothing but the documents of the part. Each ends with the one that fills it."""
    size = min(BATCH_BYTES, part_bytes // ROW_GROUPS)
    waiting: list[pa.RecordBatch] = []
    filled = 0
    for batch in batches:
        ends = np.cumsum(_text_sizes(batch))
        start = before = 0
        while start < batch.num_rows:
            stop = min(int(np.searchsorted(ends, before + size - filled)) + 1, batch.num_rows)
            waiting.append(batch.slice(start, stop - start))
            filled += int(ends[stop - 1]) - before
            start, before = stop, int(ends[stop - 1])
            if filled >= size:
                yield pa.concat_batches(waiting)
                waiting, filled = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def id_prefixes(batch: pa.RecordBatch) -> np.ndarray:
    """The leading 64 bits of each id, uint64."""
    digits = "".join(pc.utf8_slice_codeunits(batch.column("id"), 0, HEX_DIGITS).to_pylist())
    return np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)


def _text_sizes(batch: pa.RecordBatch) -> np.ndarray:
    return pc.binary_length(batch.column("text")).to_numpy().astype(np.int64)
