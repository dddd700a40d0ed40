"""All steps in a row, for a corpus whose text is in memory already."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.stages.dedup.bands import band_keys, candidate_pairs, sort_band
from pipeline.stages.dedup.cluster import labels, linked, singletons, unite
from pipeline.stages.dedup.decide import decide, exact_groups, group_survivors, order_of, survivor_order
from pipeline.stages.dedup.params import DedupParams
from pipeline.stages.dedup.shingles import ShingleSets, concat_sets, shingle_sets
from pipeline.stages.dedup.signatures import signature_schema, signatures
from pipeline.stages.dedup.verify import verify

_COLUMNS = ["id", "exact", "num_shingles", "length"]


def deduplicate(documents: Sequence[pa.RecordBatch], priorities: Sequence[int], params: DedupParams) -> pa.Table:
    """The decisions (DECISION_SCHEMA) for all documents, in order. `priorities`: the corpus priority of each batch, lowest kept first.

    Beside the text: about 100 bytes and the id per document, 8 per band for each distinct text of a batch, the shingles of candidates.
    Raises ValueError for an id that occurs twice.
    """
    if len(documents) != len(priorities):
        raise ValueError(f"{len(documents)} batches of documents need as many priorities, not {len(priorities)}")
    signed, rows, keys = _sign(documents, params)
    num_shingles = signed.column("num_shingles").to_numpy()
    groups = exact_groups(signed.column("exact"), num_shingles)
    order = survivor_order(np.repeat(priorities, [len(batch) for batch in documents]), signed.column("length").to_numpy(), signed.column("id"))
    best = group_survivors(groups, order)
    nodes = _link(rows, keys, groups, num_shingles)
    verified = verify(keys[np.searchsorted(rows, nodes)], _fetch(documents, nodes, params), order_of(nodes, best, order), params)
    return decide(signed.column("id"), groups, best, nodes, verified)


def _sign(documents: Sequence[pa.RecordBatch], params: DedupParams) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Each document's signature but the MinHash, and the global rows and band keys of the first of each distinct text of a batch."""
    schema = pa.schema([signature_schema(params).field(name) for name in _COLUMNS])
    signed, rows, keys = [], [np.zeros(0, np.int64)], [np.zeros((0, params.bands), np.uint64)]
    start = 0
    for batch in documents:
        signature = signatures(batch, params)
        groups = exact_groups(signature.column("exact"), signature.column("num_shingles").to_numpy())
        first = np.flatnonzero(groups == np.arange(len(groups)))
        rows.append(first + start)
        keys.append(band_keys(signature, params)[first])
        signed.append(signature.select(_COLUMNS))
        start += len(batch)
    return pa.Table.from_batches(signed, schema), np.concatenate(rows), np.concatenate(keys)


def _link(rows: np.ndarray, keys: np.ndarray, groups: np.ndarray, num_shingles: np.ndarray) -> np.ndarray:
    """The rows that share a band key, directly or through others, with another document."""
    distinct = (groups[rows] == rows) & (num_shingles[rows] > 0)
    parents = singletons(len(groups))
    for band in range(keys.shape[1]):
        unite(parents, *candidate_pairs(*sort_band(keys[distinct, band], rows[distinct])))
    return linked(labels(parents))


def _fetch(documents: Sequence[pa.RecordBatch], nodes: np.ndarray, params: DedupParams) -> ShingleSets:
    """The shingle sets of the given global rows (ascending), batch by batch."""
    sets = []
    start = 0
    for batch in documents:
        rows = nodes[np.searchsorted(nodes, start) : np.searchsorted(nodes, start + len(batch))] - start
        if len(rows):
            sets.append(shingle_sets(batch.select(["text"]).take(pa.array(rows)), params))
        start += len(batch)
    return concat_sets(sets)
