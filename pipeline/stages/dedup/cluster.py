"""Union-find over flat arrays, the only step that sees all documents at once: 8 bytes per document."""

import numpy as np

from pipeline.stages.compiled import borrowing, kernel


def singletons(count: int) -> np.ndarray:
    """A forest of `count` documents, each its own root: int64[count]."""
    return np.arange(count, dtype=np.int64)


@borrowing
def _root(parents: np.ndarray, node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel
def unite(parents: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Joins left[i] and right[i] in place.

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


def linked(roots: np.ndarray) -> np.ndarray:
    """Rows (ascending int64) whose cluster has other members: the documents whose text verification needs."""
    return np.flatnonzero(np.bincount(roots, minlength=len(roots))[roots] > 1)
