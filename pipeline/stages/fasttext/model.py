"""The file of a fastText classifier: `.bin`, or quantized, `.ftz`."""

import struct
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.stages.fasttext.words import (
    BITS_MASK,
    LEAST_ENTRY,
    Table,
    Vocabulary,
    enter_ngrams,
    read_entries,
)
from pipeline.store.errors import PipelineError

MAGIC, VERSION, SUPERVISED = b"\xba\x16\x4f\x2f", 12, 3
HIERARCHICAL, NEGATIVE_SAMPLING, SOFTMAX, ONE_VS_ALL = 1, 2, 3, 4  # losses
BINARY = (NEGATIVE_SAMPLING, ONE_VS_ALL)
LONGEST = 100  # characters or words of an n-gram; nobody uses more than ten
CENTROIDS = 256  # a byte names one of them
MOST_NUMBERS = 1 << 29  # 2 GiB


@dataclass(frozen=True)
class Model:
    """A classifier. `labels` are as in the file, mostly `__label__...`.

    `tree` is that of a hierarchical softmax: the left and the right child of each inner node, the root last.
    Child `i` is a label, or the inner node `i - len(labels)`. `binary`: each label has a probability of its
    own, as the losses `ns` and `ova` give it.
    """

    path: Path
    labels: tuple[str, ...]
    vocabulary: Vocabulary
    input: np.ndarray  # float32[rows, dim]
    output: np.ndarray  # float32[dim, labels]
    tree: list[tuple[int, int]] | None
    binary: bool = False


def read_model(path: Path) -> Model:
    """Opens a model: a `.bin`'s inputs stay on disk, a `.ftz`'s become float32. Raises PipelineError."""
    file = _File(path)
    if file.data[:4].tobytes() != MAGIC:
        raise PipelineError(f"{path} is not a fastText model: name the `.bin` or `.ftz` file of a classifier")
    _, version, *arguments, _ = file.numbers("<2i12id", "header")
    dim, _, _, _, _, word_ngrams, loss, kind, bucket, minn, maxn, _ = arguments
    if kind != SUPERVISED:
        raise PipelineError(f"{path} holds word vectors: name a fastText model that was trained with labels")
    if version != VERSION or loss not in (HIERARCHICAL, SOFTMAX, *BINARY):
        raise PipelineError(
            f"{path} has version {version} and loss {loss}, which are not read: train it again, by fastText "
            "0.1 or later"
        )
    file.check(all(0 <= length <= LONGEST for length in (word_ngrams, minn, maxn)), "length of n-grams")
    entries, words, labels, _, pruned = file.numbers("<3i2q", "header")
    kept = max(pruned, 0)  # n-grams; -1 if all are
    right = words >= 0 and labels > 0 and words + labels == entries
    file.check(right and entries * LEAST_ENTRY + kept * 8 <= file.left, "number of words")
    slots = 1 << (2 * (entries + kept)).bit_length()
    bits, spans = np.zeros(BITS_MASK + 1, np.uint8), np.zeros((labels, 2), np.int64)
    known = Table(np.zeros(slots, np.uint64), np.zeros(slots, np.int32), bits)
    file.position = read_entries(file.data, file.position, words, known, spans)
    file.check(file.position > 0, "vocabulary")
    ngrams = file.take(np.int32, 2 * kept, "n-grams").astype(np.int64).reshape(-1, 2)
    file.check(ngrams.min(initial=0) >= 0, "n-grams")
    bucket = max(bucket, 1)
    of_ngrams = bucket if maxn > 0 or word_ngrams > 1 else 0
    if pruned >= 0:
        of_ngrams = int(ngrams[:, 1].max(initial=-1)) + 1
    input_ = file.matrix(words + of_ngrams, dim, "input matrix")
    output = file.matrix(labels, dim, "output matrix")
    file.check(not file.left, "end")
    enter_ngrams(ngrams, words, known)
    vocabulary = Vocabulary(known, words, minn, maxn, word_ngrams, bucket, pruned >= 0)
    names = tuple(file.data[start:stop].tobytes().decode(errors="replace") for start, stop in spans)
    counts = [int.from_bytes(file.data[stop + 1 : stop + 9].tobytes(), "little") for _, stop in spans]
    tree = _tree(counts) if loss == HIERARCHICAL else None
    of_labels = np.ascontiguousarray(output[:labels].T)
    return Model(path, names, vocabulary, input_, of_labels, tree, loss in BINARY)


class _File:
    """Takes arrays off a mapped file, one after another. Raises PipelineError."""

    def __init__(self, path: Path):
        self.path, self.position = path, 0
        try:
            self.data = np.asarray(np.memmap(path, np.uint8, "r"))
        except (OSError, ValueError) as error:  # ValueError: it is empty
            reason = getattr(error, "strerror", error)
            raise PipelineError(f"{path} cannot be read as a fastText model: {reason}") from error

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def check(self, right: bool, what: str) -> None:
        if not right:
            raise PipelineError(f"{self.path} is damaged, or cut off, in its {what}: copy it again")

    def take(self, kind: type, count: int, what: str) -> np.ndarray:
        size = count * np.dtype(kind).itemsize
        self.check(0 <= size <= self.left, what)
        self.position += size
        return self.data[self.position - size : self.position].view(kind)

    def numbers(self, layout: str, what: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.take(np.uint8, struct.calcsize(layout), what).tobytes())

    def matrix(self, least: int, dim: int, what: str) -> np.ndarray:
        """float32[rows, dim], at least as many rows as are read."""
        (quantized,) = self.numbers("<?", what)
        (normed,) = self.numbers("<?", what) if quantized else (False,)
        rows, columns = self.numbers("<2q", what)
        self.check(columns == dim > 0 and rows >= max(least, 1), what)
        if not quantized:
            matrix = self.take(np.float32, rows * dim, what).reshape(rows, dim)
        else:
            (size,) = self.numbers("<i", what)
            matrix = self._expanded(self.take(np.uint8, size, what), rows, dim, what)
        if normed:
            matrix *= self._expanded(self.take(np.uint8, rows, what), rows, 1, what)
        # or kernels are compiled twice: arrays of a file are read-only, and begin at odd addresses
        matrix.flags.writeable = matrix.flags.aligned = False
        return matrix

    def _expanded(self, codes: np.ndarray, rows: int, dim: int, what: str) -> np.ndarray:
        """float32[rows, dim] of the centroids that codes name, each for `width` columns, or for the last."""
        columns, groups, width, last = self.numbers("<4i", what)
        right = columns == dim and 0 < last <= width and (groups - 1) * width + last == dim
        self.check(right and len(codes) == rows * groups, what)
        if rows * dim > MOST_NUMBERS:
            raise PipelineError(
                f"{self.path} takes {rows * dim * 4 / 1e9:.0f} GB of memory: name its `.bin` file"
            )
        matrix, codes = np.empty((rows, dim), np.float32), codes.reshape(rows, groups)
        for group, start in enumerate(range(0, dim, width)):
            size = min(width, dim - start)
            centroids = self.take(np.float32, CENTROIDS * size, what).reshape(CENTROIDS, size)
            matrix[:, start : start + size] = centroids[codes[:, group]]
        return matrix


def _tree(counts: list[int]) -> list[tuple[int, int]]:
    """fastText's Huffman tree: among equally frequent nodes inner ones come first, then the last label."""
    frequent = [(count, True, -label) for label, count in enumerate(counts)]
    heapify(frequent)
    tree: list[tuple[int, int]] = []
    while len(frequent) > 1:
        (count, _, left), (other, _, right) = heappop(frequent), heappop(frequent)
        heappush(frequent, (count + other, False, len(counts) + len(tree)))
        tree.append((abs(left), abs(right)))
    return tree
