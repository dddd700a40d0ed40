"""A fastText-style quality classifier as a filter: hashed word n-grams and a linear model, in NumPy.

`good.txt` and `bad.txt` hold what it learns from, a line each; put your own there and raise `version` in the
recipe. The score is stored, so `min_score` can change without another pass over the text.
"""

import re
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.plugins import Document, document_filter

HERE = Path(__file__).parent


@document_filter(signals={"score": float})
class Prose:
    """Logistic regression on the mean of hashed 1- and 2-grams, as fastText does it."""

    def __init__(self, buckets: int = 4096, epochs: int = 200, learning_rate: float = 20.0) -> None:
        self.buckets = buckets
        lines = [(line, label) for label in (1, 0) for line in _lines("good.txt" if label else "bad.txt")]
        features = np.stack([self._features(line) for line, _ in lines])
        labels = np.array([label for _, label in lines])
        self.weights, self.bias = np.zeros(buckets), 0.0
        for _ in range(epochs):
            error = labels - _sigmoid(features @ self.weights + self.bias)
            self.weights += learning_rate * error @ features / len(labels)
            self.bias += learning_rate * error.mean() / 10

    def signals(self, document: Document) -> dict[str, float]:
        return {"score": float(_sigmoid(self._features(document.text) @ self.weights + self.bias))}

    def keep(self, signals: dict[str, np.ndarray], min_score: float = 0.5) -> np.ndarray:
        return signals["score"] >= min_score

    def _features(self, text: str) -> np.ndarray:
        words = re.findall(r"\w+|[^\w\s]", text.lower())
        ngrams = [*words, *map(" ".join, pairwise(words))]
        numbers = [zlib.crc32(ngram.encode()) % self.buckets for ngram in ngrams]  # hash() differs by process
        return np.bincount(numbers, minlength=self.buckets) / max(len(ngrams), 1)


def _lines(name: str) -> list[str]:
    return (HERE / name).read_text(encoding="utf-8").splitlines()


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))
