"""Clusters of documents that may be duplicates: what is compared together, and how a giant one is cut."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.compiled import kernel
from pipeline.stages.dedup.verify import Verified
from pipeline.stages.hashing import murmur128

# Of a cluster that is verified at once: 1.3 GB of shingles. A larger one is cut along the order of survivors,
# in which neighbors are alike in length, as near duplicates are.
PIECE_CHARACTERS = 1 << 28
KEY_CHARACTERS = 256  # as many take the memory of the band keys of a text
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

    def verified(self, texts: np.ndarray, of_texts: Verified) -> Verified:
        """The result of verifying `texts`, whose positions `of_texts` holds, extended to all texts."""
        keeper, similarity = np.arange(len(self.rows)), np.full(len(self.rows), np.nan, np.float32)
        keeper[texts], similarity[texts] = texts[of_texts.keeper], of_texts.jaccard
        return Verified(keeper, similarity)


def clustered(linked: pa.RecordBatch) -> Clusters:
    """Sorts linked documents (MEMBER_SCHEMA, any order): survivors by corpus priority (lowest number first),
    then longer, then id.

    Documents of one exact hash must have one root. n log n; about 300 bytes for each linked document.
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
    starts = np.append(_starts_of_pieces(roots, members.column("length").to_numpy()[best]), count)
    blocks = np.frombuffer(exact.dictionary.buffers()[1] or b"", np.uint64)[2 * exact.dictionary.offset :]
    blocks.flags.writeable = False  # as Arrow leaves it or not; the kernel would be compiled for both
    return Clusters(members, texts, best, rows, starts, _cluster_keys(blocks, starts))


def _starts_of_pieces(roots: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The first text of each cluster, int64[clusters]. One of more than PIECE_CHARACTERS is cut into pieces,
    which are clusters of their own from then on. `roots` and `lengths`, in characters, are of the texts.
    """
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
