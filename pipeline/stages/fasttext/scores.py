"""How likely each label of a fastText classifier is for each text."""

import numpy as np
import pyarrow as pa

from pipeline.stages.fasttext.model import Model
from pipeline.stages.fasttext.words import add_texts
from pipeline.stages.text import utf8_arrays
from pipeline.store.errors import PipelineError

VERSION = "fasttext-1"
_LEAST = 1e-5  # fastText adds it before it takes a logarithm, and so to every probability
# The logistic function of fastText's binary losses is a table over [-8, 8], and 0 or 1 beyond.
_FARTHEST, _ENTRIES = 8.0, 512
_LOGISTIC = (1 / (1 + np.exp(-(np.arange(_ENTRIES + 1) * 2 * _FARTHEST / _ENTRIES - _FARTHEST)))).astype(
    np.float32
)


def scores(model: Model, texts: pa.Array) -> np.ndarray:
    """float32[texts, labels]: the probabilities that fastText gives for each text as one line, its newlines
    read as spaces; 1e-5 too large, as fastText gives them. All 0 for a text without a known word or n-gram.

    On one core about 60 MB/s by lid.176.ftz, 50 by a model like lid.176.bin, and 35 by one like DCLM's, where
    a core waits for a row of 400 bytes of memory for each two words. Raises PipelineError where the numbers
    of the model make no probability.
    """
    totals, counts = np.zeros((len(texts), len(model.output)), np.float32), np.zeros(len(texts), np.int64)
    add_texts(*utf8_arrays(texts), model.vocabulary, model.input, totals, counts)
    with np.errstate(over="ignore", invalid="ignore"):
        means = totals / np.maximum(counts, 1).astype(np.float32)[:, None]
        # not `@`, whose threads take the cores of other processes
        sums = np.einsum("td,dl->tl", means, model.output)
        if model.binary:
            found = _logistic(sums)
        else:
            found = _softmax(sums) if model.tree is None else _of_leaves(sums, model.tree)
    if not np.isfinite(found).all():
        raise PipelineError(f"{model.path} is damaged: it gives a probability of {found.max()}")
    found[counts == 0] = 0
    return found


def _softmax(sums: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.exp(sums - sums.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True) + np.float32(_LEAST)


def _logistic(sums: np.ndarray) -> np.ndarray:
    """The probabilities of labels that exclude none of the others."""
    entry = ((np.clip(sums, -_FARTHEST, _FARTHEST) + _FARTHEST) * _ENTRIES / _FARTHEST / 2).astype(np.int64)
    found = np.where(sums < -_FARTHEST, 0, np.where(sums > _FARTHEST, 1, _LOGISTIC[entry]))
    return found.astype(np.float32) + np.float32(_LEAST)


def _of_leaves(sums: np.ndarray, tree: list[tuple[int, int]]) -> np.ndarray:
    """The probabilities of a hierarchical softmax: of each branch on the way from the root to a label."""
    labels = sums.shape[1]
    right = (1 + np.tanh(sums.T / 2)) / 2  # the logistic function, without an overflow
    found = np.ones((labels + len(tree), len(sums)), np.float32)
    for node in reversed(range(len(tree))):
        for child, likely in zip(tree[node], (1 - right[node], right[node]), strict=True):
            found[child] = found[labels + node] * (likely + np.float32(_LEAST))
    return found[:labels].T
