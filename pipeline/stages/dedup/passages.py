"""Documents as passages, each with a MinHash: what a rewritten paragraph of a long document is found by.

The MinHash of a whole document cannot find it: a paragraph of 80 words has a Jaccard similarity of at most
0.03 to a document of 3,000 words that holds it. Passages are searched with datasketch's LSH Forest (Bawa et
al. 2005) and LSH Ensemble (Zhu et al. 2016). Their hash tables are views of sorted arrays, which may be
files: nothing is built first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.stages.compiled import kernel
from pipeline.stages.dedup.params import DedupParams
from pipeline.stages.dedup.shingles import Texts, hash_shingles, normalize_row, texts
from pipeline.stages.dedup.signatures import minhash_row, permutations
from pipeline.stages.text import UNICODE

VERSION = f"passages-2-{UNICODE}"
# Where one word of five is replaced, 0.8^3 of the 3-grams stay, a half, but only a third of the 5-grams. Of
# 2-grams, an unrelated document as long as a book holds a third by chance; of 3-grams, a tenth.
WORDS = 3
SHINGLES = DedupParams(ngram=WORDS)
PASSAGE, STRIDE = 256, 128  # shingles. A text of up to 128 is whole in one of the passages
NUM_PERM = 64
DEPTH = 2  # values of a band at most
# The ensemble's bands for texts shorter than a passage: many candidates, since all of them are verified.
WEIGHTS = (0.1, 0.9)  # of false positives and false negatives


def passages(documents: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The passages of the documents, in order: MinHash values (datasketch's `affine32`), uint32 [n,
    NUM_PERM], and numbers of shingles, uint32 [n]; and how many passages each document has, int64, none where
    its text is empty. A passage begins each STRIDE shingles of a document.

    Memory: about the size of the text. Linear time, 240 MB/s of one core.
    """
    column = texts(documents.column("text"))
    most = np.diff(column.offsets) // 2 // STRIDE + 1
    values = np.empty((most.sum(), NUM_PERM), np.uint32)
    sizes, numbers = np.empty(most.sum(), np.uint32), np.zeros(len(most), np.int64)
    _sign(column, *permutations(NUM_PERM), values, sizes, numbers)
    return values[: numbers.sum()], sizes[: numbers.sum()], numbers


def sorted_bands(values: np.ndarray) -> np.ndarray:
    """For each place in a MinHash the passages sorted by their DEPTH values from there on, uint32 [NUM_PERM,
    n]: the hash tables of an LSH whose bands begin there. `values`: uint32 [n, NUM_PERM].
    """
    orders = np.empty((NUM_PERM, len(values)), np.uint32)
    for place, order in enumerate(orders):
        following = values[:, min(place + 1, NUM_PERM - 1)]
        keys = values[:, place].astype(np.uint64) << np.uint64(32) | following
        order[:] = np.argsort(keys, kind="stable")
    return orders


@kernel
def _sign(
    texts: Texts, a: np.ndarray, b: np.ndarray, values: np.ndarray, sizes: np.ndarray, numbers: np.ndarray
) -> None:
    at = 0
    for row in range(len(numbers)):
        count = hash_shingles(texts, normalize_row(texts, row), WORDS)
        begin = 0
        while begin < count:
            end = min(begin + PASSAGE, count)
            minhash_row(texts.words[begin:], end - begin, a, b, values[at])
            sizes[at] = end - begin
            at += 1
            numbers[row] += 1
            begin = count if end == count else begin + STRIDE


class Band(Sequence[Any]):
    """A hash table as datasketch reads it. By number: the key of a passage, in ascending order; by key: the
    passages with it, counted from `first`. A key is the bytes of some values of a MinHash, the highest byte
    first.

    `values`: >u4 [n, length of the band]; `order`: the n passages, sorted.
    """

    def __init__(self, values: np.ndarray, order: np.ndarray, first: int):
        self._values, self._order, self._first = values, order, first

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: object) -> bool:
        place = bisect_left(self, key)
        return place < len(self) and self[place] == key

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, bytes):
            found = self._order[bisect_left(self, at) : bisect_right(self, at)]
            return (found.astype(np.int64) + self._first).tolist()
        return self._values[self._order[at]].tobytes()


class PassageSearch:
    """Parts of a corpus, open to be searched: the `values` of their passages, >u4 [n, NUM_PERM], and their
    `orders`, as of `sorted_bands`. `containment`: the share of a text's shingles that a passage should have.
    """

    def __init__(self, parts: Sequence[tuple[np.ndarray, np.ndarray]], containment: float):
        from datasketch import MinHashLSHEnsemble, MinHashLSHForest  # here, because it takes a second

        self._values = [values for values, _ in parts]
        self._firsts = np.cumsum([0, *map(len, self._values)])
        self._forests = []
        ensemble = MinHashLSHEnsemble(containment, NUM_PERM, len(parts), DEPTH, WEIGHTS)
        for number, (values, orders) in enumerate(parts):
            bands = partial(_bands, values, orders, int(self._firsts[number]))
            forest = MinHashLSHForest(NUM_PERM, l=NUM_PERM // DEPTH)
            forest.hashtables = forest.sorted_hashtables = bands(DEPTH)
            self._forests.append(forest)
            ensemble.lowers[number], ensemble.uppers[number] = 1, PASSAGE
            for rows, lsh in ensemble.indexes[number].items():
                lsh.hashtables = bands(rows)
        self._ensemble = ensemble

    def holding(self, minhash: np.ndarray, shingles: int, most: int) -> tuple[np.ndarray, np.ndarray]:
        """The passages that may hold a text of up to PASSAGE `shingles`, by the ensemble: at most so many,
        those with most MinHash values in common with it. Returns their numbers, counted over all parts, and
        the values in common, int64, descending.
        """
        return self._best(self._ensemble.query(_asked(minhash), shingles), minhash, most)

    def like(self, minhash: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """As `holding`, the passages that are like a text of PASSAGE shingles, by the forests."""
        asked = _asked(minhash)
        found = chain.from_iterable(forest.query(asked, most) for forest in self._forests)
        return self._best(found, minhash, most)

    def _best(self, found: Iterable[int], minhash: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.array(sorted({*found}), np.int64)
        edges = np.searchsorted(numbers, self._firsts)
        common = np.zeros(len(numbers), np.int64)
        for part, values in enumerate(self._values):
            here = slice(edges[part], edges[part + 1])
            common[here] = (values[numbers[here] - self._firsts[part]] == minhash).sum(1)
        best = np.argsort(-common, kind="stable")[:most]
        return numbers[best], common[best]


def _asked(minhash: np.ndarray) -> Any:
    from datasketch import MinHash

    return MinHash(hashvalues=minhash, scheme="affine32")


def _bands(values: np.ndarray, orders: np.ndarray, first: int, rows: int) -> list[Band]:
    places = range(0, NUM_PERM, rows)
    return [Band(values[:, place : place + rows], orders[place], first) for place in places]
