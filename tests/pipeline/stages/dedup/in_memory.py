"""What tests and benchmarks compare with: all steps in a row for a corpus whose text is in memory, and the
exact similarity of two texts.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.stages.dedup.bands import (
    band_keys,
    candidate_pairs,
    exact_keys,
    first_of_equal,
    labels,
    linked,
    sort_band,
    unite,
)
from pipeline.stages.dedup.clusters import MEMBER_SCHEMA, clustered
from pipeline.stages.dedup.params import DedupParams
from pipeline.stages.dedup.shingles import ShingleSets, concat_sets, shingle_sets
from pipeline.stages.dedup.signatures import signature_schema, signatures
from pipeline.stages.dedup.survivors import DECISION_SCHEMA, decide, decisions
from pipeline.stages.dedup.verify import verify

_COLUMNS = ["id", "exact", "num_shingles", "length"]


def deduplicate(
    documents: Sequence[pa.RecordBatch], priorities: Sequence[int], params: DedupParams
) -> pa.Table:
    """The decisions (DECISION_SCHEMA) for all documents, in order. `priorities`: the corpus priority of each
    batch, lowest kept first.

    Beside the text: about 100 bytes and the id per document, 8 per band for each distinct text of a batch,
    the shingles of candidates.
    """
    signed, rows, keys = _sign(documents, params)
    roots = _roots(signed, rows, keys)
    company = linked(roots)
    priority = np.repeat(np.array(priorities, np.int32), [len(batch) for batch in documents])
    found = {
        "row": company,
        "root": roots[company],
        "priority": priority[company],
        **{name: signed.column(name).take(company).combine_chunks() for name in _COLUMNS},
    }
    columns = [found[name] for name in MEMBER_SCHEMA.names]
    clusters = clustered(pa.record_batch(columns, schema=MEMBER_SCHEMA))
    texts = clusters.contested[np.argsort(clusters.rows[clusters.contested])]  # in the order of the batches
    sets = _fetch(documents, clusters.rows[texts], params)
    pieces = clusters.keys[np.searchsorted(clusters.starts, texts, side="right") - 1, :1]
    found_keys = keys[np.searchsorted(rows, clusters.rows[texts])] ^ pieces
    verified = verify(found_keys, sets, np.argsort(texts), params)
    decided = decide(clusters, clusters.verified(texts, verified))
    return pa.Table.from_batches(
        [decisions(signed.column("id").combine_chunks(), decided, 0)], DECISION_SCHEMA
    )


def _sign(
    documents: Sequence[pa.RecordBatch], params: DedupParams
) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Each document's signature but the MinHash, and the global rows and band keys of the first of each
    distinct text of a batch.
    """
    schema = pa.schema([signature_schema(params).field(name) for name in _COLUMNS])
    signed, rows, keys = [], [np.zeros(0, np.int64)], [np.zeros((0, params.bands), np.uint64)]
    start = 0
    for batch in documents:
        signature = signatures(batch, params)
        first = first_of_equal(signature)
        rows.append(first + start)
        keys.append(band_keys(signature, params)[first])
        signed.append(signature.select(_COLUMNS))
        start += len(batch)
    return pa.Table.from_batches(signed, schema).combine_chunks(), np.concatenate(rows), np.concatenate(keys)


def _roots(signed: pa.Table, rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The smallest row that each document shares text or a band key with, directly or through others."""
    parents = np.arange(len(signed))
    exact = signed.column("exact").combine_chunks()
    unite(
        parents,
        *candidate_pairs(
            *sort_band(exact_keys(exact, signed.column("num_shingles").to_numpy()), np.arange(len(signed)))
        ),
    )
    for band in range(keys.shape[1]):
        unite(parents, *candidate_pairs(*sort_band(keys[:, band], rows)))
    return labels(parents)


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


def jaccard(left: np.ndarray, right: np.ndarray) -> float:
    """|A n B| / |A u B| of two ascending sets of distinct hashes; 0 for two empty ones."""
    common = len(np.intersect1d(left, right, assume_unique=True))
    union = len(left) + len(right) - common
    return common / union if union else 0.0
