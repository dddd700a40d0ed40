"""How likely each label of a fastText classifier is for each text."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.stages.compiled import borrowing, kernel, sources
from pipeline.stages.fasttext.model import HIERARCHICAL, SOFTMAX, Model, ModelError
from pipeline.stages.fasttext.words import (
    EOS_HASH,
    EOS_KEY,
    PENDING,
    Matrix,
    Vocabulary,
    add_ngram,
    add_pending,
    add_word,
    place,
    read_word,
)
from pipeline.stages.text import utf8_arrays

VERSION = "fasttext-1"
REMEMBERED = 1 << 22  # numbers: 16 MB
BLOCK = 16  # documents whose labels are scored at once, while a row of the output is in the cache
_FACTOR, _0, _1 = np.uint64(116049371), np.uint64(0), np.uint64(1)
_LEAST = 1e-5  # fastText adds it before it takes a logarithm, and so to every probability
_STEPS, _MOST = 512, 8  # of its table of the logistic function, which ends at -8 and 8
_LOGISTIC = (1 / (1 + np.exp(-np.linspace(-_MOST, _MOST, _STEPS + 1)))).astype(np.float32)


class Memo(NamedTuple):
    """What `add_word` said of words met before, by the place of their key. Emptied when half full."""

    keys: np.ndarray  # uint64[slots]
    sums: np.ndarray  # float32[slots * (dim + 1)]: in each slot the sum of the rows after their number
    rows: np.ndarray  # the same memory as int32
    used: np.ndarray  # int64[1], slots


def scores(model: Model, texts: pa.Array) -> np.ndarray:
    """float32[texts, labels]: the probabilities that fastText gives for each text as one line, its newlines
    read as spaces; 1e-5 too large, as fastText gives them. All 0 for a text without a known word or n-gram.

    On one core about 50 MB/s by lid.176.ftz, 38 by a model like lid.176.bin, and 25 by one like DCLM's, where
    a core waits for a row of 400 bytes of memory for each two words. Raises ModelError where the numbers of
    the model make no probability.
    """
    dim = model.input.dim
    slots = 1 << max(REMEMBERED // dim, 2).bit_length() - 1
    sums = np.empty(slots * (dim + 1), np.float32)
    memo = Memo(np.zeros(slots, np.uint64), sums, sums.view(np.int32), np.zeros(1, np.int64))
    hidden = np.zeros((len(texts), dim), np.float32)
    ngrams = np.zeros(model.vocabulary.word_ngrams + 1, np.uint64)
    found = np.zeros((len(texts), len(model.labels)), np.float32)
    tree = (model.parents, model.right)
    _compiled()(
        *utf8_arrays(texts), model.vocabulary, model.input, memo, ngrams, hidden,
        model.output, model.loss, *tree, found,
    )  # fmt: skip
    if not np.isfinite(found).all():
        raise ModelError(f"{model.path} is damaged: it gives a probability of {found.max()}")
    return found


@borrowing
def _add_text(
    data: np.ndarray, position: int, stop: int, known: Vocabulary, matrix: Matrix, memo: Memo,
    ngrams: np.ndarray, pending: np.ndarray, hidden: np.ndarray,
) -> int:  # fmt: skip
    """Adds the rows of a text to `hidden`. Returns their number. Entry n of `ngrams` is the hash of the last
    n + 1 words; `pending` are rows of a word, and rows of n-grams of words.
    """
    rows = words = 0
    dim, key = np.uint64(matrix.dim), _1
    while key != EOS_KEY:
        start = position
        position, key, value = read_word(data, start, stop)
        if start == position:
            position += 1
            if position <= stop:
                continue
            key, value = EOS_KEY, EOS_HASH
        if 2 * memo.used[0] > len(memo.keys):
            memo.keys[:] = 0
            memo.used[0] = 0
        slot = place(memo.keys, key)
        first = np.uint64(slot) * (dim + _1)
        if not memo.keys[slot]:
            memo.keys[slot] = key
            memo.used[0] += 1
            for i in range(first, first + dim + _1):
                memo.sums[i] = 0
            memo.rows[first] = add_word(
                data, start, position, key, known, matrix, pending[0], memo.sums, first + _1
            )
        if memo.rows[first] >= 0:
            rows += memo.rows[first]
            for i in range(dim):
                hidden[i] += memo.sums[first + _1 + i]
            last = np.uint64(np.int32(value))
            for n in range(min(words, known.word_ngrams - 1), 0, -1):
                ngrams[n] = ngrams[n - 1] * _FACTOR + last
                rows += add_ngram(ngrams[n], known, matrix, pending[1], hidden, _0)
            ngrams[0] = last
            words += 1
    add_pending(matrix, pending[1], hidden, _0)
    return rows


@borrowing
def _logistic(x: np.float32) -> np.float32:
    if abs(x) > _MOST:
        return np.float32(x > 0)
    return _LOGISTIC[np.int64((x + np.float32(_MOST)) * np.float32(_STEPS / _MOST / 2))]


@cache
def _compiled() -> Callable[..., None]:
    """The kernel: from texts to the mean of their rows in `hidden`, and from there to scores in `found`."""
    parts = sources()

    @kernel
    def score(
        data: np.ndarray, offsets: np.ndarray, known: Vocabulary, matrix: Matrix, memo: Memo,
        ngrams: np.ndarray, hidden: np.ndarray, output: np.ndarray, loss: int, parents: np.ndarray,
        right: np.ndarray, found: np.ndarray,
    ) -> None:  # fmt: skip
        _ = parts
        pending = np.zeros((2, PENDING + 1), np.uint64)
        nodes, rows = np.ones(max(len(parents), 1)), np.zeros(BLOCK, np.int64)
        for begin in range(0, len(found), BLOCK):
            block = range(begin, min(begin + BLOCK, len(found)))
            for text in block:
                start, stop = offsets[text], offsets[text + 1]
                added = _add_text(data, start, stop, known, matrix, memo, ngrams, pending, hidden[text])
                hidden[text] *= np.float32(1 / max(added, 1))
                rows[text - begin] = added
            for i in range(len(output)):
                for text in block:
                    for label in range(output.shape[1]):
                        found[text, label] += hidden[text, i] * output[i, label]
            for text in block:
                one = found[text]
                if not rows[text - begin]:
                    one[:] = 0
                elif loss == HIERARCHICAL:
                    for node in range(len(parents) - 2, -1, -1):
                        share = 1 / (1 + math.exp(-one[parents[node] - len(one)]))
                        nodes[node] = nodes[parents[node]] * ((share if right[node] else 1 - share) + _LEAST)
                    one[:] = nodes[: len(one)]
                elif loss == SOFTMAX:
                    one -= one.max()
                    total = 0.0
                    for label in range(len(one)):
                        one[label] = math.exp(one[label])
                        total += one[label]
                    for label in range(len(one)):
                        one[label] = one[label] / total + _LEAST
                else:
                    for label in range(len(one)):
                        one[label] = _logistic(one[label]) + _LEAST

    return score
