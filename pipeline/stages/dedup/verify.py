"""Removes a candidate only when its exact similarity to a kept document reaches the threshold."""

from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.dedup.params import DedupParams
from pipeline.stages.dedup.shingles import ShingleSets

# Bounds for pages that share only a template. Past them a duplicate may stay; every removal is verified.
KEPT_PER_KEY = 1024  # kept documents that a key remembers
COMPARISONS = 64  # kept documents, those that share most keys first, that a document is compared with


class Verified(NamedTuple):
    """The kept document that each document duplicates."""

    keeper: np.ndarray  # int64, its position; the document's own if it is kept
    jaccard: np.ndarray  # float32, the exact similarity; NaN if it is kept


class _Rule(NamedTuple):
    """The similarity from which on a document is removed."""

    threshold: float
    containment: bool


class _Kept(NamedTuple):
    """The kept documents that each bucket (a key of a band) remembers, and the state of one search.

    Documents are named by their place in the survivor order. Bucket b holds members[starts[b] : starts[b] +
    filled[b]].
    """

    starts: np.ndarray
    filled: np.ndarray
    members: np.ndarray
    shared: np.ndarray  # keys that each document has in common with the one searched for
    met: np.ndarray  # documents with a common key


def verify(keys: np.ndarray, sets: ShingleSets, order: np.ndarray, params: DedupParams) -> Verified:
    """Keeps each candidate, best survivor first, unless it is similar to a kept one with a common band key.

    `keys`: uint64[n, bands]; `sets`: their n shingle sets; `order`: int64[n], positions from the best
    survivor to the worst. All members of a cluster must come in one call, with any other complete clusters:
    clusters never influence each other. A member that only a chain links to the survivor is kept, and
    documents like it are then duplicates of it. "containment" is the share of the removed document's shingles
    that the kept one has.

    Memory for each document: 1 KB at 32 bands plus 8 bytes per shingle. Time: linear in n, at most
    COMPARISONS merges each.
    """
    buckets, starts = _buckets(keys[order])
    count = len(keys)
    verified = Verified(np.arange(count, dtype=np.int64), np.full(count, np.nan, np.float32))
    kept = _Kept(
        starts,
        filled=np.zeros(len(starts) - 1, np.int64),
        members=np.empty(starts[-1], np.int64),
        shared=np.zeros(count, np.int64),
        met=np.empty(count, np.int64),
    )
    _verify(buckets, kept, sets, order, _Rule(params.threshold, params.measure == "containment"), verified)
    return verified


def _buckets(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers the distinct keys of all bands: int64[n, bands], and where the members of each start."""
    numbers, sizes = np.empty(keys.shape, np.int64), [np.zeros(1, np.int64)]
    total = 0
    for band in range(keys.shape[1]):
        distinct, inverse, counts = np.unique(keys[:, band], return_inverse=True, return_counts=True)
        numbers[:, band] = inverse + total
        sizes.append(counts)
        total += len(distinct)
    return numbers, np.cumsum(np.concatenate(sizes))


@borrowing
def overlap(left: np.ndarray, right: np.ndarray, needed: int) -> int:
    """Common members of two ascending sets of distinct hashes, or -1 as soon as they cannot be `needed`."""
    i = j = common = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            common += 1
            i += 1
            j += 1
            continue
        if left[i] < right[j]:
            i += 1
        else:
            j += 1
        if common + min(len(left) - i, len(right) - j) < needed:
            return -1
    return common


@borrowing
def _similar(sets: ShingleSets, kept: int, document: int, rule: _Rule) -> float:
    """The Jaccard similarity of two rows of the sets if they reach the threshold, else -1."""
    left = sets.hashes[sets.offsets[kept] : sets.offsets[kept + 1]]
    right = sets.hashes[sets.offsets[document] : sets.offsets[document + 1]]
    sizes = len(left) + len(right)
    least = rule.threshold * len(right) if rule.containment else rule.threshold / (1 + rule.threshold) * sizes
    # Rounded down a little, because the bound only saves work and the exact ratio decides.
    common = overlap(left, right, np.int64(np.ceil(least - 1e-6)))
    if common <= 0:
        return -1.0
    similarity = common / (sizes - common)
    return similarity if (common / len(right) if rule.containment else similarity) >= rule.threshold else -1.0


@kernel
def _verify(
    buckets: np.ndarray, kept: _Kept, sets: ShingleSets, order: np.ndarray, rule: _Rule, out: Verified
) -> None:
    for place in range(len(order)):
        document, compared = order[place], 0
        found = _count_common_keys(buckets[place], kept)
        for level in range(buckets.shape[1], 0, -1):
            for k in range(found):
                undecided = compared < COMPARISONS and out.keeper[document] == document
                if undecided and kept.shared[kept.met[k]] == level:
                    other = order[kept.met[k]]
                    similarity = _similar(sets, other, document, rule)
                    compared += 1
                    if similarity >= 0:
                        out.keeper[document], out.jaccard[document] = other, similarity
        for k in range(found):
            kept.shared[kept.met[k]] = 0
        if out.keeper[document] == document:
            _remember(place, buckets[place], kept)


@borrowing
def _count_common_keys(buckets: np.ndarray, kept: _Kept) -> int:
    """Counts common keys per kept document in `shared`, lists those in `met`; returns their number."""
    found = 0
    for bucket in buckets:
        for slot in range(kept.starts[bucket], kept.starts[bucket] + kept.filled[bucket]):
            place = kept.members[slot]
            if kept.shared[place] == 0:
                kept.met[found] = place
                found += 1
            kept.shared[place] += 1
    return found


@borrowing
def _remember(place: int, buckets: np.ndarray, kept: _Kept) -> None:
    for bucket in buckets:
        if kept.filled[bucket] < KEPT_PER_KEY:
            kept.members[kept.starts[bucket] + kept.filled[bucket]] = place
            kept.filled[bucket] += 1
