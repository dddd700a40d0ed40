"""Who survives, and the table that says why the others do not."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.dedup.verify import Verified

REASONS = pa.array(["exact", "near"])
DECISION_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("keep", pa.bool_(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("duplicate_of", pa.string()),
        pa.field("jaccard", pa.float32()),
        pa.field("cluster", pa.int64(), nullable=False),
    ]
)


def exact_groups(exact: pa.Array | pa.ChunkedArray, num_shingles: np.ndarray) -> np.ndarray:
    """The smallest row with the same exact hash, int64[n]: itself for a document without an equal, and for empty text, which equals nothing.

    Equal documents have equal MinHash values and shingles, so the row that each group is named after stands for it in all later steps.
    Linear; 28 bytes per document.
    """
    column = exact.combine_chunks() if isinstance(exact, pa.ChunkedArray) else exact
    codes = column.dictionary_encode().indices.to_numpy()
    rows = np.arange(len(codes), dtype=np.int64)
    first = np.empty(len(codes), np.int64)
    first[codes[::-1]] = rows[::-1]
    return np.where(num_shingles == 0, rows, first[codes])


def survivor_order(priority: np.ndarray, length: np.ndarray, ids: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Rows from the first to keep to the last, int64[n]: by corpus priority (lowest number first), then longer, then id.

    Raises ValueError where an id occurs twice: decisions are keyed by it.
    """
    if pc.count_distinct(ids).as_py() != len(ids):
        counts = pc.value_counts(ids)
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        raise ValueError(f"{len(repeated)} document ids occur more than once, the first is {repeated[0].as_py()!r}: give every document its own id")
    table = pa.table({"priority": priority, "length": length, "id": ids})
    order = pc.sort_indices(table, sort_keys=[("priority", "ascending"), ("length", "descending"), ("id", "ascending")])
    return order.to_numpy().astype(np.int64)


def group_survivors(groups: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The first row in survivor order of each row's exact group, int64[n]. A row that `order` leaves out stands for itself."""
    best = np.arange(len(groups), dtype=np.int64)
    best[groups[order[::-1]]] = order[::-1]
    return best[groups]


def order_of(nodes: np.ndarray, best: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Positions in `nodes` (rows that name an exact group) in the survivor order of the groups' survivors, as `verify` wants them."""
    place = np.empty(len(best), np.int64)
    place[order] = np.arange(len(order))
    return np.argsort(place[best[nodes]], kind="stable")


def decide(ids: pa.Array | pa.ChunkedArray, groups: np.ndarray, best: np.ndarray, nodes: np.ndarray, verified: Verified) -> pa.Table:
    """One row for each document, in order, as DECISION_SCHEMA.

    `duplicate_of` is always a document that is kept, `jaccard` the exact similarity to it (1.0 where reason is "exact": equal normalised
    text), `cluster` how many documents the kept one stands for, itself included. An exact copy of a near duplicate is a near duplicate.
    """
    rows = np.arange(len(groups), dtype=np.int64)
    survivors, scores = best.copy(), np.full(len(groups), np.nan, np.float32)
    survivors[nodes] = best[nodes[verified.keeper]]
    scores[nodes] = verified.jaccard
    survivors, scores = survivors[groups], scores[groups]
    kept, exact = survivors == rows, survivors == best
    return pa.table(
        [
            ids,
            pa.array(kept),
            pa.DictionaryArray.from_arrays(pa.array(np.where(exact, 0, 1).astype(np.int8), mask=kept), REASONS).cast(pa.string()),
            pc.take(ids, pa.array(survivors, mask=kept)),
            pa.array(np.where(exact, np.float32(1), scores), mask=kept),
            pa.array(np.bincount(survivors, minlength=len(rows))[survivors]),
        ],
        schema=DECISION_SCHEMA,
    )
