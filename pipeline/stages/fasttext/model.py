"""The file of a fastText classifier: `.bin`, or quantised, `.ftz`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.stages.compiled import kernel
from pipeline.stages.fasttext.words import (
    CENTROIDS,
    KEPT_MASK,
    PENDING,
    Matrix,
    Vocabulary,
    add_later,
    add_pending,
    place,
    read_word,
)
from pipeline.store.errors import PipelineError

MAGIC, VERSIONS, SUPERVISED = 793712314, (11, 12), 3
HIERARCHICAL, NEGATIVE_SAMPLING, SOFTMAX, ONE_VS_ALL = LOSSES = (1, 2, 3, 4)
LONGEST = 100  # characters or words of an n-gram; nobody uses more than ten
LEAST_ENTRY = 10  # bytes: the end of a word, how often it occurs, and whether it is a label
UNMADE = 10**15  # fastText's count of a node of the tree that does not exist yet


class ModelError(PipelineError):
    """A file is no fastText classifier, or is damaged."""


@dataclass(frozen=True)
class Model:
    """A classifier. `labels` are as in the file, mostly `__label__...`; `output` is float32[dim, labels].

    `parents` and `right` describe the tree of a HIERARCHICAL loss, and are empty for any other: its first
    nodes are the labels, the last one is the root.
    """

    path: Path
    labels: tuple[str, ...]
    loss: int
    vocabulary: Vocabulary
    input: Matrix
    output: np.ndarray
    parents: np.ndarray
    right: np.ndarray


def read_model(path: Path) -> Model:
    """Opens a model. Its input matrix stays on disk, shared by all processes. Raises ModelError."""
    file = _File(path)
    magic, version = file.numbers("header", np.int32, np.int32)
    if magic != MAGIC:
        raise ModelError(f"{path} is not a fastText model: name the `.bin` or `.ftz` file of a classifier")
    file.check(version in VERSIONS, "version", version)
    arguments = file.numbers("arguments", *[np.int32] * 12, np.float64)
    dim, _, _, _, _, word_ngrams, loss, kind, bucket, minn, maxn, *_ = arguments
    if kind != SUPERVISED:
        raise ModelError(f"{path} holds word vectors: name a fastText model that was trained with labels")
    file.check(loss in LOSSES, "loss", loss)
    for name, value in {"wordNgrams": word_ngrams, "minn": minn, "maxn": maxn}.items():
        file.check(0 <= value <= LONGEST, name, value)
    entries, words, labels = file.numbers("vocabulary", *[np.int32] * 3)
    _, pruned = file.numbers("vocabulary", np.int64, np.int64)
    right = words >= 0 and labels > 0 and words + labels == entries
    file.check(right and entries <= file.left // LEAST_ENTRY, "number of words", words)
    keys, numbers = _table(entries)
    spans = np.zeros((labels, 3), np.int64)
    file.position = _read_entries(file.data, file.position, words, keys, numbers, spans)
    file.check(file.position > 0, "vocabulary", "without words and then labels up to its end")
    ngrams = file.take(np.int32, 2 * max(pruned, 0), "n-grams").reshape(-1, 2)
    if version == VERSIONS[0]:
        maxn = 0  # such classifiers were trained without n-grams of characters
    if pruned == 0:
        maxn = word_ngrams = 0
    rows = words
    if maxn > 0 or word_ngrams > 1:
        file.check(bucket > 0 and ngrams.min(initial=0) >= 0, "number of buckets", bucket)
        rows += int(ngrams[:, 1].max()) + 1 if pruned > 0 else bucket
    quantised = file.flag("input matrix")
    file.check(quantised or pruned < 0, "vocabulary", "pruned in a model that is not quantised")
    input_ = file.matrix(quantised, dim, rows, "input matrix")
    output = np.zeros((labels, dim), np.float32)
    _add_rows(file.matrix(file.flag("output matrix") and quantised, dim, labels, "output matrix"), output)
    file.check(not file.left, "length", len(file.data))
    kept, kept_bits = _table(len(ngrams)), np.zeros(KEPT_MASK + 1, np.uint8)
    _keep(ngrams, *kept, kept_bits)
    vocabulary = Vocabulary(
        keys, numbers, words, minn, maxn, word_ngrams, max(bucket, 1), pruned > 0, *kept, kept_bits
    )
    names = (file.data[start:stop].tobytes().decode(errors="replace") for start, stop, _ in spans)
    counts = spans[:, 2] if loss == HIERARCHICAL else spans[:0, 2]
    file.check(counts.min(initial=0) >= 0 and counts.sum(dtype=float) < UNMADE, "count of labels", "so large")
    tree = _tree(counts.tolist())
    return Model(path, tuple(names), loss, vocabulary, input_, np.ascontiguousarray(output.T), *tree)


class _File:
    """Takes arrays off a mapped file, one after another. Raises ModelError."""

    def __init__(self, path: Path):
        self.path, self.position = path, 0
        try:
            self.data = np.asarray(np.memmap(path, np.uint8, "r"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is empty"
            raise ModelError(f"{path} cannot be read as a fastText model: {reason}") from error

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def check(self, right: bool, what: str, found: Any) -> None:
        if not right:
            raise ModelError(f"{self.path} is damaged, since its {what} cannot be {found}: copy it again")

    def take(self, kind: type, count: int, what: str) -> np.ndarray:
        size = count * np.dtype(kind).itemsize
        self.check(0 <= size <= self.left, what, f"{size:,} bytes long where {self.left:,} are left")
        taken: np.ndarray = self.data[self.position : self.position + size].view(kind)
        taken.flags.aligned = False  # or kernels are compiled twice: for arrays at odd addresses and at even
        self.position += size
        return taken

    def numbers(self, what: str, *kinds: type) -> list[int]:
        return [int(self.take(kind, 1, what)[0]) for kind in kinds]

    def flag(self, what: str) -> bool:
        (value,) = self.numbers(what, np.uint8)
        self.check(value < 2, f"kind of {what}", value)
        return value == 1

    def matrix(self, quantised: bool, dim: int, least: int, what: str) -> Matrix:
        """A matrix of `dim` columns and at least as many rows as are read."""
        normed = quantised and self.flag(what)
        rows, columns = self.numbers(what, np.int64, np.int64)
        self.check(columns == dim > 0 and rows >= least, what, f"of {rows:,} x {columns:,} numbers")
        dense = self.take(np.float32, 0 if quantised else rows * dim, what)
        codes, centroids, width = dense[:0].view(np.uint8), dense[:0], 1
        norms = np.zeros(0, np.float32)
        if quantised:
            (size,) = self.numbers(what, np.int32)
            codes = self.take(np.uint8, size, what)
            width, centroids = self._centroids(dim, what)
            self.check(size == rows * -(-dim // width), what, f"of {size:,} codes")
        if normed:
            chosen = self.take(np.uint8, rows, what)
            norms = self._centroids(1, what)[1][chosen]
        return Matrix(dense, codes, centroids, norms, dim, width)

    def _centroids(self, dim: int, what: str) -> tuple[int, np.ndarray]:
        """How many dimensions a code stands for, and what each code stands for."""
        columns, groups, width, last = self.numbers(what, *[np.int32] * 4)
        right = columns == dim and 0 < last <= width and (groups - 1) * width + last == dim
        self.check(right, what, f"of {groups:,} x {width:,} columns")
        return width, self.take(np.float32, CENTROIDS * dim, what)


def _table(entries: int) -> tuple[np.ndarray, np.ndarray]:
    """Empty keys, more than twice as many as entries, and the number that belongs to each."""
    slots = 1 << (2 * entries).bit_length()
    return np.zeros(slots, np.uint64), np.zeros(slots, np.int32)


@kernel
def _read_entries(
    file: np.ndarray, at: int, words: int, keys: np.ndarray, numbers: np.ndarray, spans: np.ndarray
) -> int:
    """Fills the table, and `start, stop, count` of each label. Returns the position after all entries, or -1
    where they are not as many words, and then labels.
    """
    for entry in range(words + len(spans)):
        stop, key, _ = read_word(file, at, len(file))
        if stop + LEAST_ENTRY > len(file) or file[stop] or file[stop + 9] != (entry >= words):
            return -1
        slot = place(keys, key)
        keys[slot], numbers[slot] = key, entry
        if entry >= words:
            spans[entry - words, 0], spans[entry - words, 1] = at, stop
            for byte in range(8):
                spans[entry - words, 2] |= np.int64(file[stop + 1 + byte]) << (8 * byte)
        at = stop + LEAST_ENTRY
    return at


@kernel
def _keep(ngrams: np.ndarray, kept: np.ndarray, rows: np.ndarray, bits: np.ndarray) -> None:
    for ngram, row in ngrams:
        slot = place(kept, np.uint64(ngram + 1))
        kept[slot], rows[slot] = ngram + 1, row
        bits[ngram >> 3 & KEPT_MASK] |= np.uint8(1 << (ngram & 7))


@kernel
def _add_rows(matrix: Matrix, total: np.ndarray) -> None:
    pending = np.zeros(PENDING + 1, np.uint64)
    for row in range(len(total)):
        add_later(row, matrix, pending, total[row], np.uint64(0))
        add_pending(matrix, pending, total[row], np.uint64(0))


def _tree(counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The parent of each node, and whether it is the right child: Huffman's tree as fastText builds it."""
    labels, nodes = len(counts), max(2 * len(counts) - 1, 0)
    parents, right = np.zeros(nodes, np.int32), np.zeros(nodes, np.bool_)
    totals = counts + [UNMADE] * (nodes - labels)
    leaf, node = labels - 1, labels
    for parent in range(labels, nodes):
        total = 0
        for side in (False, True):
            if leaf >= 0 and totals[leaf] < totals[node]:
                child, leaf = leaf, leaf - 1
            else:
                child, node = node, node + 1
            parents[child], right[child] = parent, side
            total += totals[child]
        totals[parent] = total
    return parents, right
