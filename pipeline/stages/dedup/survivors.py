"""Which documents survive, and the table of reasons for the removed ones."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.dedup.clusters import Clusters
from pipeline.stages.dedup.verify import Verified
from pipeline.store.params import required

EXACT, NEAR = "exact", "near"
DECISION_SCHEMA = pa.schema(
    [
        *required(id=pa.string(), keep=pa.bool_()),
        pa.field("reason", pa.string()),
        pa.field("duplicate_of", pa.string()),
        pa.field("jaccard", pa.float32()),
        *required(cluster=pa.int64()),
    ]
)


def decide(clusters: Clusters, verified: Verified) -> pa.RecordBatch:
    """DECISION_SCHEMA for each linked document, with its `row` (ascending) and its survivor's `priority`.

    `verified` is about texts. Documents that are not linked are kept.

    `duplicate_of` is always a kept document, `jaccard` the exact similarity to it (1.0 where reason is
    "exact": equal normalized text), `cluster` how many documents the kept one represents, itself included. An
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
