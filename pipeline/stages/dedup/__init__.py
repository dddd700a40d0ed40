"""Exact and near duplicates, verified before anything is removed.

The steps, each a map over parts or bands but `unite`, with the bytes that each table takes per document:

1. `signatures` of each part: the id and 29 + 4 * num_perm bytes (1,053 at 32 x 8).
2. `exact_groups` over all parts' `exact` and `num_shingles`: 28 bytes. Only a group's first row goes on; empty text is its own group.
3. `band_keys` of each part, 8 bytes per band (256), then `sort_band` or `merge_runs`, and `candidate_pairs`, one band (or one range of its
   keys) at a time: 32 bytes while sorting, 16 per pair.
4. `unite` the pairs (8 bytes); `linked(labels(...))` are the documents in candidate clusters. `survivor_order` and `group_survivors` need
   priority, length and id of those and of the exact groups' members only.
5. `shingle_sets` of the linked documents, part by part: 8 bytes per distinct shingle, about 1.4 times their text.
6. `verify` whole clusters, as many at a time as memory allows: 1 KB at 32 bands, and the shingle sets.
7. `decide`: one row for each document. Arrival order, batches and the choice of clusters per call leave no trace in it.

`deduplicate` is all of it in memory. Empty text (nothing but white space) is no duplicate of anything, not even of empty text: every such
document is kept, for the quality stage to judge.
"""

from pipeline.stages.dedup.bands import EMPTY_KEY, band_keys, candidate_pairs, merge_runs, sort_band
from pipeline.stages.dedup.cluster import labels, linked, singletons, unite
from pipeline.stages.dedup.decide import DECISION_SCHEMA, decide, exact_groups, group_survivors, order_of, survivor_order
from pipeline.stages.dedup.in_memory import deduplicate
from pipeline.stages.dedup.params import VERSION, DedupParams
from pipeline.stages.dedup.shingles import ShingleSets, concat_sets, shingle_sets
from pipeline.stages.dedup.signatures import signature_schema, signatures
from pipeline.stages.dedup.verify import Verified, jaccard, verify

__all__ = [
    "DECISION_SCHEMA",
    "EMPTY_KEY",
    "VERSION",
    "DedupParams",
    "ShingleSets",
    "Verified",
    "band_keys",
    "candidate_pairs",
    "concat_sets",
    "decide",
    "deduplicate",
    "exact_groups",
    "group_survivors",
    "jaccard",
    "labels",
    "linked",
    "merge_runs",
    "order_of",
    "shingle_sets",
    "signature_schema",
    "signatures",
    "singletons",
    "sort_band",
    "survivor_order",
    "unite",
    "verify",
]
