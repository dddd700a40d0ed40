"""Exact and near duplicates, verified before anything is removed.

The steps, with the bytes that each table takes per document. All but `unite` map over parts or bands:

1. `signatures` of each part: the id and 29 + 4 * num_perm bytes (1,053 at 32 x 8), of which the id and 28 are
   kept.
2. `exact_keys` and `band_keys` of each part, each sorted by `sort_band`: runs of 12 bytes per key, so 396 at
   32 bands. The runs of bands hold only the first of equal documents of a part.
3. `candidate_pairs` of one range of keys over all parts at a time: 32 bytes for each key while
   sorting, 16 per pair.
4. `unite` the pairs and take `labels`: 16 bytes for each document, all of them at once. Of more documents
   than that allows, ranges go from link to link in rounds of `nearest`. `linked` are the documents in
   candidate clusters; later steps read only these.
5. `clustered` sorts those of complete components into clusters, or pieces of giant ones, texts and
   survivors: about 300 bytes for each linked document at its peak.
6. `shingle_sets` of the texts to verify, part by part: 8 bytes per distinct shingle, about 1.4 times their
   text.
7. `verify` complete clusters, as many at a time as memory allows: 1 KB at 32 bands, and the shingle sets.
8. `decide` on complete clusters, then `decisions`: one row for each document. It does not depend on the
   order of arrival, the batches, or the clusters per call.

Empty text (nothing but white space) is not a duplicate of anything, not even of empty text: every such
document is kept, for the quality stage to judge.
"""

from pipeline.stages.dedup.bands import (
    EMPTY_KEY,
    band_keys,
    candidate_pairs,
    exact_keys,
    first_of_equal,
    labels,
    linked,
    nearest,
    sort_band,
    unite,
)
from pipeline.stages.dedup.clusters import MEMBER_SCHEMA, Clusters, clustered
from pipeline.stages.dedup.params import VERSION, DedupParams
from pipeline.stages.dedup.shingles import ShingleSets, concat_sets, shingle_sets
from pipeline.stages.dedup.signatures import signature_schema, signatures
from pipeline.stages.dedup.survivors import DECISION_SCHEMA, decide, decisions, excluded, without_comparison
from pipeline.stages.dedup.verify import Verified, verify
