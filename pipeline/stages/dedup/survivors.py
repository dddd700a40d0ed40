"""Which documents survive, and the table of reasons for the removed ones."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.compiled import kernel
from pipeline.stages.dedup.hashing import murmur128
from pipeline.stages.dedup.verify import Verified
from pipeline.store.params import required

EXACT, NEAR = "exact", "near"
# Of a cluster that is verified at once: 1.3 GB of shingles. A larger one is cut along the order of survivors,
# in which neighbours are alike in length, as near duplicates are.
PIECE_CHARACTERS = 1 << 28
KEY_CHARACTERS = 256  # as many take the memory of the band keys of a text
DECISION_SCHEMA = pa.schema(
    [
        *required(id=pa.string(), keep=pa.bool_()),
        pa.field("reason", pa.string()),
        pa.field("duplicate_of", pa.string()),
        pa.field("jaccard", pa.float32()),
        *required(cluster=pa.int64()),
    ]
)
MEMBER_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("root", pa.int64()),
        pa.field("priority", pa.int32()),
        pa.field("length", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("exact", pa.binary(16)),
    ]
)


class Clusters(NamedTuple):
    """Linked documents by cluster, from the best survivor to the worst. Equal documents are one text."""

    members: pa.RecordBatch  # MEMBER_SCHEMA
    texts: np.ndarray  # int64, the number of each member's text; texts are numbered in the order of members
    best: np.ndarray  # int64, the member that survives of each text
    rows: np.ndarray  # int64, the smallest row of each text
    starts: np.ndarray  # int64, cluster c has the texts from starts[c] to starts[c + 1]
    keys: np.ndarray  # uint64[clusters, 2], equal exactly for the same texts in the same order

    @property
    def contested(self) -> np.ndarray:
        """The texts (ascending int64) that share a cluster with another: those to verify."""
        sizes = np.diff(self.starts)
        return np.flatnonzero(np.repeat(sizes, sizes) > 1)

    def verified(self, texts: np.ndarray, found: Verified) -> Verified:
        """The result of verifying `texts`, whose positions `found` holds, extended to all texts."""
        keeper, similarity = np.arange(len(self.rows)), np.full(len(self.rows), np.nan, np.float32)
        keeper[texts], similarity[texts] = texts[found.keeper], found.jaccard
        return Verified(keeper, similarity)


def clustered(linked: pa.RecordBatch) -> Clusters:
    """Sorts linked documents (MEMBER_SCHEMA, any order): survivors by corpus priority (lowest number first),
    then longer, then id.

    Documents of one exact hash must have one root. n log n; about 300 bytes for each linked
    document.
    """
    order = [("root", "ascending"), ("priority", "ascending"), ("length", "descending"), ("id", "ascending")]
    members = linked.take(pc.sort_indices(linked, sort_keys=order))
    del linked
    exact = members.column("exact").dictionary_encode()
    # Codes number distinct values in order: by cluster and, within it, from the best survivor.
    texts = exact.indices.to_numpy().astype(np.int64)
    positions, count = np.arange(len(texts)), len(exact.dictionary)
    best, rows = np.empty(count, np.int64), np.full(count, np.iinfo(np.int64).max)
    best[texts[::-1]] = positions[::-1]
    np.minimum.at(rows, texts, members.column("row").to_numpy())
    roots = members.column("root").to_numpy()[best]
    starts = np.append(_starts(roots, members.column("length").to_numpy()[best]), count)
    blocks = np.frombuffer(exact.dictionary.buffers()[1] or b"", np.uint64)[2 * exact.dictionary.offset :]
    blocks.flags.writeable = False  # as Arrow leaves it or not; the kernel would be compiled for both
    return Clusters(members, texts, best, rows, starts, _cluster_keys(blocks, starts))


def _starts(roots: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The first text of each cluster, or piece of one."""
    first = np.append(True, roots[1:] != roots[:-1])[: len(roots)]
    before = np.cumsum(lengths + KEY_CHARACTERS) - lengths - KEY_CHARACTERS
    pieces = (before - np.maximum.accumulate(np.where(first, before, 0))) // PIECE_CHARACTERS
    return np.flatnonzero(first | (np.diff(pieces, prepend=0) > 0))


@kernel
def _cluster_keys(exact: np.ndarray, starts: np.ndarray) -> np.ndarray:
    keys = np.empty((len(starts) - 1, 2), np.uint64)
    for cluster in range(len(keys)):
        keys[cluster, 0], keys[cluster, 1] = murmur128(
            exact[2 * starts[cluster] :], 16 * (starts[cluster + 1] - starts[cluster])
        )
    return keys


def decide(clusters: Clusters, verified: Verified) -> pa.RecordBatch:
    """DECISION_SCHEMA for each linked document, with its `row` (ascending) and its survivor's `priority`.

    `verified` is about texts. Documents that are not linked are kept.

    `duplicate_of` is always a kept document, `jaccard` the exact similarity to it (1.0 where reason is
    "exact": equal normalised text), `cluster` how many documents the kept one represents, itself included. An
    exact copy of a near duplicate is a near duplicate.
    """
    ids, rows = (clusters.members.column(name) for name in ("id", "row"))
    order = np.argsort(rows)
    texts = clusters.texts[order]
    keeper = verified.keeper[texts]
    survivors = clusters.best[keeper]
    kept, exact = survivors == order, keeper == texts
    return pa.record_batch(
        {
            "row": rows.take(pa.array(order)),
            "priority": clusters.members.column("priority").take(pa.array(survivors)),
            "id": ids.take(pa.array(order)),
            "keep": kept,
            "reason": pc.if_else(pa.array(kept), None, pc.if_else(pa.array(exact), EXACT, NEAR)).cast(
                pa.string()
            ),
            "duplicate_of": pc.take(ids, pa.array(survivors, mask=kept)),
            "jaccard": pa.array(np.where(exact, np.float32(1), verified.jaccard[texts]), mask=kept),
            "cluster": np.bincount(survivors, minlength=len(texts))[survivors],
        }
    )


def decisions(ids: pa.Array, decided: pa.RecordBatch, start: int) -> pa.RecordBatch:
    """One row of DECISION_SCHEMA for each of the documents `ids`, in order.

    `start` is the row of the first. `decided` may also hold rows of other documents.
    """
    rows = decided.column("row").to_numpy()
    here = decided.slice(low := np.searchsorted(rows, start), np.searchsorted(rows, start + len(ids)) - low)
    place = np.full(len(ids), -1, np.int64)
    place[here.column("row").to_numpy() - start] = np.arange(len(here))
    found = here.take(pa.array(place, mask=place < 0))
    reasons = [found.column(name) for name in ("reason", "duplicate_of", "jaccard")]
    columns = [ids, found.column("keep").fill_null(True), *reasons, found.column("cluster").fill_null(1)]
    return pa.RecordBatch.from_arrays(columns, schema=DECISION_SCHEMA)


def excluded(decisions: pa.RecordBatch, reason: str) -> pa.RecordBatch:
    """DECISION_SCHEMA in which documents that were kept are removed for `reason`. Their duplicates still
    name them.
    """
    reasons = pc.if_else(decisions.column("keep"), reason, decisions.column("reason"))
    removed = pa.repeat(False, len(decisions))
    columns = [decisions.column("id"), removed, reasons, *decisions.columns[3:]]
    return pa.RecordBatch.from_arrays(columns, schema=DECISION_SCHEMA)


def without_comparison(ids: pa.Array, reason: str) -> pa.RecordBatch:
    """DECISION_SCHEMA for documents that are removed for `reason`, without a comparison with others."""
    unknown = pa.nulls(len(ids), pa.string()), pa.nulls(len(ids), pa.float32())
    columns = [ids, pa.repeat(False, len(ids)), pa.repeat(reason, len(ids)), *unknown, pa.repeat(0, len(ids))]
    return pa.RecordBatch.from_arrays(columns, schema=DECISION_SCHEMA)
