"""Candidates are only candidates: a document goes when its exact similarity to one that stays says so."""

from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import inner, kernel
from pipeline.stages.dedup.params import DedupParams
from pipeline.stages.dedup.shingles import ShingleSets

# Bounds for pages that share a template and nothing else: how many kept documents a key remembers, and how
# many of those that share most keys a document is compared with. Past them a duplicate may stay; no document
# goes unverified.
KEPT_PER_KEY = 1024
COMPARISONS = 64


class Verified(NamedTuple):
    """For each document the position of the kept one that it duplicates (int64, itself if kept) and their
    exact Jaccard (float32, NaN if kept).
    """

    keeper: np.ndarray
    jaccard: np.ndarray


class _Kept(NamedTuple):
    """The kept documents, by place in the survivor order, that each bucket (a key of a band) remembers, and
    the state of one look-up.

    Bucket b holds members[starts[b] : starts[b] + filled[b]]; `shared` counts the keys in common with the
    documents listed in `met`.
    """

    starts: np.ndarray
    filled: np.ndarray
    members: np.ndarray
    shared: np.ndarray
    met: np.ndarray


def verify(keys: np.ndarray, sets: ShingleSets, order: np.ndarray, params: DedupParams) -> Verified:
    """Decides candidates, best survivor first: each is kept unless it is similar to a kept one that it shares
    a band key with.

    `keys`: uint64[n, bands]; `sets`: their n shingle sets; `order`: int64[n], positions from the best
    survivor to the worst. Members of one cluster must come in one call; clusters never influence each other,
    so any whole clusters may. A member that only a chain links to the survivor is kept, and then stands for
    those like it. "containment": the share of the removed document's shingles found in the kept one. Memory:
    1 KB at 32 bands plus 8 bytes per shingle for each document. Time: linear in n, at most COMPARISONS merges
    each.
    """
    if not len(keys) == len(order) == len(sets.offsets) - 1:
        raise ValueError(
            f"{len(keys)} rows of keys, {len(sets.offsets) - 1} shingle sets and {len(order)} places in the "
            "order must be as many"
        )
    buckets, starts = _buckets(keys[order])
    count, verified = (
        len(keys),
        Verified(np.arange(len(keys), dtype=np.int64), np.full(len(keys), np.nan, np.float32)),
    )
    kept = _Kept(
        starts,
        np.zeros(len(starts) - 1, np.int64),
        np.empty(starts[-1], np.int64),
        np.zeros(count, np.int64),
        np.empty(count, np.int64),
    )
    _verify(buckets, kept, *sets, order, params.threshold, params.measure == "containment", *verified)
    return verified


def _buckets(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers the distinct keys of all bands: their numbers int64[n, bands], and where the members of each
    start in one flat array.
    """
    numbers, sizes = np.empty(keys.shape, np.int64), [np.zeros(1, np.int64)]
    total = 0
    for band in range(keys.shape[1]):
        distinct, inverse, counts = np.unique(keys[:, band], return_inverse=True, return_counts=True)
        numbers[:, band] = inverse + total
        sizes.append(counts)
        total += len(distinct)
    return numbers, np.cumsum(np.concatenate(sizes))


@inner
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


@inner
def _similar(
    offsets: np.ndarray, hashes: np.ndarray, kept: int, document: int, threshold: float, containment: bool
) -> float:
    """The Jaccard of two rows of the sets if they pass the threshold, else -1."""
    left, right = hashes[offsets[kept] : offsets[kept + 1]], hashes[offsets[document] : offsets[document + 1]]
    sizes = len(left) + len(right)
    least = threshold * len(right) if containment else threshold / (1 + threshold) * sizes
    # Rounded down a little: the bound only saves work, the exact ratio decides.
    common = overlap(left, right, np.int64(np.ceil(least - 1e-6)))
    if common <= 0:
        return -1.0
    similarity = common / (sizes - common)
    return similarity if (common / len(right) if containment else similarity) >= threshold else -1.0


@kernel
def _verify(
    buckets: np.ndarray,
    kept: _Kept,
    offsets: np.ndarray,
    hashes: np.ndarray,
    order: np.ndarray,
    threshold: float,
    containment: bool,
    keeper: np.ndarray,
    similarity: np.ndarray,
) -> None:
    for place in range(len(order)):
        document, compared = order[place], 0
        found = _count_common_keys(buckets[place], kept)
        for level in range(buckets.shape[1], 0, -1):
            for k in range(found):
                if (
                    kept.shared[kept.met[k]] == level
                    and compared < COMPARISONS
                    and keeper[document] == document
                ):
                    other = order[kept.met[k]]
                    score = _similar(offsets, hashes, other, document, threshold, containment)
                    compared += 1
                    if score >= 0:
                        keeper[document], similarity[document] = other, score
        for k in range(found):
            kept.shared[kept.met[k]] = 0
        if keeper[document] == document:
            _remember(place, buckets[place], kept)


@inner
def _count_common_keys(buckets: np.ndarray, kept: _Kept) -> int:
    """Counts in `shared` the keys that each kept document has in common with these, and lists those documents
    in `met`; returns how many.
    """
    found = 0
    for bucket in buckets:
        for slot in range(kept.starts[bucket], kept.starts[bucket] + kept.filled[bucket]):
            place = kept.members[slot]
            if kept.shared[place] == 0:
                kept.met[found] = place
                found += 1
            kept.shared[place] += 1
    return found


@inner
def _remember(place: int, buckets: np.ndarray, kept: _Kept) -> None:
    for bucket in buckets:
        if kept.filled[bucket] < KEPT_PER_KEY:
            kept.members[kept.starts[bucket] + kept.filled[bucket]] = place
            kept.filled[bucket] += 1
