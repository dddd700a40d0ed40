"""From MinHash values to candidate clusters: documents with an equal key in a band are a pair, and pairs are
joined by union-find over flat arrays, or where these are too many for one process, in rounds.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.dedup.params import DedupParams
from pipeline.stages.hashing import mix64

# The key of a document without shingles, which candidate_pairs leaves out.
EMPTY_KEY = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)
_FACTOR = np.uint64(0x9FB21C651E98DF25)


def band_keys(signatures: pa.RecordBatch, params: DedupParams) -> np.ndarray:
    """The key of each document in each band, uint64[n, bands]: a hash of the band's number and its `rows`
    MinHash values.

    64 bits, because at 1e9 documents a band of 32-bit keys would hold 1.2e8 false pairs, one of 64 bits 0.03.
    8 bytes per document and band.
    """
    minhash = signatures.column("minhash")
    values = minhash.flatten().to_numpy().reshape(-1, params.num_perm)
    return _band_keys(values, signatures.column("num_shingles").to_numpy() == 0, params.bands)


@kernel
def _band_keys(minhash: np.ndarray, empty: np.ndarray, bands: int) -> np.ndarray:
    keys = np.empty((len(minhash), bands), np.uint64)
    rows = minhash.shape[1] // bands
    for document in range(len(minhash)):
        for band in range(bands):
            key = mix64(np.uint64(band + 1))
            for row in range(band * rows, (band + 1) * rows):
                key = (key ^ np.uint64(minhash[document, row])) * _FACTOR
                key ^= key >> np.uint64(32)
            keys[document, band] = EMPTY_KEY if empty[document] else min(key, EMPTY_KEY - _ONE)
    return keys


def exact_keys(exact: pa.Array, num_shingles: np.ndarray) -> np.ndarray:
    """A key for equal text, uint64[n], sorted and paired like those of a band.

    It is the first half of the hash, which is enough because pairs are verified.
    """
    halves = np.frombuffer(exact.buffers()[1], np.uint64)[
        2 * exact.offset : 2 * (exact.offset + len(exact)) : 2
    ]
    return np.where(num_shingles == 0, EMPTY_KEY, np.minimum(halves, EMPTY_KEY - _ONE))


def first_of_equal(signatures: pa.RecordBatch) -> np.ndarray:
    """The first row of each distinct text that is not empty, ascending int64."""
    codes = signatures.column("exact").dictionary_encode().indices.to_numpy()
    first = np.diff(np.maximum.accumulate(codes), prepend=-1) > 0
    return np.flatnonzero(first & (signatures.column("num_shingles").to_numpy() > 0))


def sort_band(keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A sorted run: one band's keys (uint64[n]) ascending, and their documents (int64[n] global rows).

    Concatenated runs become one run: timsort finds them, about 20 M keys/s. To bound memory, take one range
    of keys at a time: equal keys are in the same range, and a range is one slice of each run.
    """
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]


@kernel
def candidate_pairs(keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The documents that share a key of one sorted band: (left, right) int64, left the smallest row of each
    key and right each other one.

    A star, not a clique: n documents of one key make n - 1 pairs. Linear; 16 bytes per document for the band
    and 16 per pair. The smallest row decides only the links, never which document survives.
    """
    left, right = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    pairs = start = 0
    while start < len(keys) and keys[start] != EMPTY_KEY:
        end, center = start, rows[start]
        while end < len(keys) and keys[end] == keys[start]:
            center = min(center, rows[end])
            end += 1
        for i in range(start, end):
            if rows[i] != center:
                left[pairs], right[pairs] = center, rows[i]
                pairs += 1
        start = end
    return left[:pairs].copy(), right[:pairs].copy()


@borrowing
def _root(parents: np.ndarray, node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel
def unite(parents: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Joins left[i] and right[i] in place. `parents`: int64, of each document its own row before the first
    pairs.

    The smaller row becomes the root, so `labels` do not depend on the order of the pairs.
    """
    for i in range(len(left)):
        a, b = _root(parents, left[i]), _root(parents, right[i])
        if a < b:
            parents[b] = a
        else:
            parents[a] = b


@kernel
def labels(parents: np.ndarray) -> np.ndarray:
    """The smallest row of each document's cluster, int64[n]."""
    roots = np.empty_like(parents)
    for node in range(len(parents)):
        roots[node] = _root(parents, node)
    return roots


class Nearest(NamedTuple):
    """The `rows` of some links (ascending int64), the `smallest` row that each knows of, and the links with
    which the next round goes on: (left, right) int64. `settled`: they are those of before.
    """

    rows: np.ndarray
    smallest: np.ndarray
    left: np.ndarray
    right: np.ndarray
    settled: bool


def nearest(rows: np.ndarray, others: np.ndarray) -> Nearest:
    """One round of hash-to-min (Rastogi et al. 2013): each row tells its neighbors and the smallest row it
    knows of about each other. Links are int64[n], all those of each of the `rows`, which span less than 2^23.
    Once each row of all links is settled, `smallest` are the `labels`. Some log n rounds.

    Sorts in 32 bytes a link. Rows are less than 2^40.
    """
    first = rows.min(initial=1 << 40)
    packed = np.sort((rows - first) << 40 | others)
    packed = packed[np.diff(packed, prepend=-1) != 0]
    rows, others = (packed >> 40) + first, packed & ((1 << 40) - 1)
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    sizes = np.diff(starts, append=len(rows))
    rows = rows[starts]
    smallest = np.minimum(rows, others[starts])
    settled = bool(((sizes == 1) | (smallest == rows)).all())
    left = np.concatenate([np.repeat(smallest, sizes), smallest])
    right = np.concatenate([others, rows])
    apart = left != right
    return Nearest(rows, smallest, left[apart], right[apart], settled)


def linked(roots: np.ndarray) -> np.ndarray:
    """Rows (ascending int64) whose cluster has other members: the documents whose text verification needs."""
    return np.flatnonzero(np.bincount(roots, minlength=len(roots))[roots] > 1)
