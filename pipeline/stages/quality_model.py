"""A model of quality: whether a text is more like some than like others, by its words and pairs of words.

A fastText classifier of two labels, which can use one dimension only: the mean of the weights of words and
hashed pairs. Logarithms of ratios of frequencies rank as well as what fastText trains, in closed form.
"""

import struct
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from pipeline.plugins import batch_filter
from pipeline.stages.fasttext.filter import Probability
from pipeline.store.params import Params

WINDOW = 1000  # characters
HELD_OUT = 0.1
LEAST_COUNT = 10  # of what gets a weight; by rarer ones a text would be known that was trained on
BUCKETS = 1 << 20  # of pairs of words
RARE = 1e-6  # share of a text, added to that of each word or pair


class QualityModelParams(Params):
    """A fastText classifier that tells the texts of some corpora from those of others, all scrubbed."""

    positive: tuple[str, ...] = Field(min_length=1)
    """Corpora of good text, which the classifier is to prefer."""
    negative: tuple[str, ...] = Field(min_length=1)
    """Corpora of other text, from which the classifier learns to tell good text."""


@batch_filter(signals={"probability": float})
class Score(Probability):
    """The probability of a label for beginning, middle and end of each text."""

    version = f"windows-1 {Probability.version}"

    def signals(self, documents: pa.RecordBatch) -> dict[str, np.ndarray]:
        return super().signals(pa.record_batch({"text": windows(documents.column("text"))}))


def windows(texts: pa.Array) -> pa.Array:
    """Whole words of beginning, middle and end, as many characters of each text: lengths say nothing."""
    return pa.array(map(_windows, texts.to_pylist()), pa.large_string())


def _windows(text: str) -> str:
    places = (0, (len(text) - WINDOW) // 2, len(text) - WINDOW)
    words = (word for at in places for word in text[at : at + WINDOW].split()[1:-1])
    return " ".join(words) if len(text) > 3 * WINDOW else text


def train(
    texts: pa.Array, *, corpus: np.ndarray, positive: np.ndarray, share: np.ndarray, names: tuple[str, ...]
) -> tuple[bytes, dict[str, Any]]:
    """A model as fastText's `.bin`, and facts about it. `texts` are `windows`. Each is of the corpus
    `names[corpus]`, and `positive` or not. Its `share`, uniform between 0 and 1, decides whether it is held
    out: a tenth of the texts to test on, and another tenth to calibrate on.
    """
    test, training = share < HELD_OUT, share >= 2 * HELD_OUT
    words, rows, text = _rows(texts)
    sizes = np.maximum(np.bincount(text, minlength=len(share)), 1)
    weight = 1 / np.where(positive, positive.sum(), (~positive).sum())  # so that both sides count alike
    counts = np.bincount(rows[training[text]], minlength=len(words) + BUCKETS)

    def fitted(used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weight of each row: the log of how much more often positive texts have it. And the mean weight
        of each text.
        """
        each = (used * weight * (positive == side) / sizes for side in (True, False))
        yes, no = (np.bincount(rows, one[text], len(counts)) + RARE for one in each)
        weights = np.where(counts < LEAST_COUNT, 0, np.log(yes / no))
        return weights, np.bincount(text, weights[rows], len(share)) / sizes

    weights, logit = fitted(training)
    left, factors = ~(test | training), np.geomspace(1 / 16, 16, 129)
    margins = factors[:, None] * np.where(positive, logit, -logit)[left]
    # as if some labels were wrong (Platt 1999), or the factor would have no limit
    losses = (np.logaddexp(0, -margins) + margins / (left.sum() + 2)) @ weight[left]
    factor = factors[losses.argmin()]
    score = 1 / (1 + np.exp(-factor * logit))
    facts = {
        "AUC": auc(score[test & positive], score[test & ~positive]),
        "mean score of negatives, held out": _mean(score, weight, test & ~positive),
        "mean score of negatives, trained on": _mean(score, weight, training & ~positive),
        "share of variance between sides": _explained(score[test], positive[test].astype(int)),
        "share of variance between corpora": _explained(score[test], corpus[test]),
        "calibration": list(_calibration(score, positive, weight, test)),
    }
    for number, name in enumerate(names):
        own, side = corpus == number, positive[corpus == number].any()
        if (positive[~own] == side).any():
            unseen = fitted(training & ~own)[1] * (1 if side else -1)
            facts[f"AUC of {name}, left out"] = auc(unseen[own], unseen[test & (positive != side)])
    return _file(words, counts, factor * weights), facts


def _mean(values: np.ndarray, weight: np.ndarray, texts: np.ndarray) -> float:
    """The weighted mean of the values of some `texts`, bool."""
    return round(float(np.average(values[texts], weights=weight[texts])), 3)


def _explained(scores: np.ndarray, group: np.ndarray) -> float:
    """The share of the variance of scores that lies between groups."""
    means = np.bincount(group, scores) / np.maximum(np.bincount(group), 1)
    return round(float(means[group].var() / scores.var()), 3)


def _calibration(
    score: np.ndarray, positive: np.ndarray, weight: np.ndarray, test: np.ndarray
) -> Iterator[dict[str, Any]]:
    """For each tenth of the scores, how many `test` texts have one, and the means of score and label."""
    tenth = np.ceil(10 * score)
    for number in np.unique(tenth[test]):
        texts = test & (tenth == number)
        yield {
            "documents": int(texts.sum()),
            "mean score": _mean(score, weight, texts),
            "positive": _mean(positive, weight, texts),
        }


def auc(above: np.ndarray, below: np.ndarray) -> float:
    """The probability that a score of `above` is higher than one of `below`. Equal scores count half."""
    lower = [np.searchsorted(np.sort(below), above, side).mean() for side in ("left", "right")]
    return round(float(sum(lower)) / 2 / len(below), 4)


def _rows(texts: pa.Array) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """The vocabulary; the rows of the texts, a word and then its pair with the next; the text of each row."""
    readable = pc.replace_substring_regex(texts, r"\x00|</s>", " ")  # which end a word and a text in fastText
    split = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(readable))
    text = np.repeat(np.arange(len(texts)), pc.list_value_length(split))
    coded = split.flatten().dictionary_encode()
    words, word = [one.encode() for one in coded.dictionary.to_pylist()], coded.indices.to_numpy()

    def fnv(value: int, byte: int) -> int:  # of bytes with a sign
        return (value ^ (byte if byte < 128 else byte + 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF

    hashes = np.array([reduce(fnv, one, 2166136261) for one in words], np.uint32)
    hashes = hashes.astype(np.int32).astype(np.uint64)[word]
    pairs = (hashes * np.uint64(116049371) + np.append(hashes[1:], np.uint64(0))) % np.uint64(BUCKETS)
    rows = np.stack([word, pairs.astype(np.int32) + np.int32(len(words))], axis=1)
    paired = np.append(text[1:] == text[:-1], False)  # the end of a text would tell how long it is
    kept = np.stack([np.ones_like(paired), paired], axis=1)
    return words, rows[kept], np.repeat(text, 2)[kept.ravel()]


def _file(words: list[bytes], counts: np.ndarray, weights: np.ndarray) -> bytes:
    """The outputs of the labels differ by 1, so that the mean of the weights is the logit."""
    arguments = (1, 5, 1, LEAST_COUNT, 5, 2, 3, 3, BUCKETS, 0, 0, 100, 1e-4)  # 3, 3: softmax, a classifier
    written = [struct.pack("<2i12id", 793712314, 12, *arguments)]
    written.append(struct.pack("<3i2q", len(words) + 2, len(words), 2, counts[: len(words)].sum(), -1))
    for number, word in enumerate([*words, b"__label__positive", b"__label__negative"]):
        written.append(word + b"\0" + struct.pack("<qb", counts[number], number >= len(words)))
    written.append(struct.pack("<?2q", False, len(weights), 1) + weights.astype("<f4").tobytes())
    return b"".join([*written, struct.pack("<?2q2f", False, 2, 1, 0.5, -0.5)])
