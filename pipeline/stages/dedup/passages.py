"""Documents as passages, each with a MinHash: what a rewritten paragraph of a long document is found by.

The MinHash of a whole document cannot find it: a paragraph of 80 words has a Jaccard similarity of at most
0.03 to a document of 3,000 words that holds it.
"""

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
