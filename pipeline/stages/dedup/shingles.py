"""A document as the set of its word n-grams, its shingles."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.dedup.normalize import (
    ALONE,
    GROWTH,
    MARK,
    PADDING,
    WORD,
    characters,
    classes_with,
    normal_form,
    normalize,
)
from pipeline.stages.dedup.params import DedupParams
from pipeline.stages.hashing import GOLDEN_RATIO, mix64, murmur128
from pipeline.stages.text import decode

_PRIME = np.uint64(0x9FB21C651E98DF25)
_HALF, _ZERO = np.uint64(32), np.uint64(0)


class ShingleSets(NamedTuple):
    """Row i is `hashes[offsets[i]:offsets[i + 1]]`, ascending and distinct. `offsets`: int64[n + 1],
    `hashes`: uint64.
    """

    offsets: np.ndarray
    hashes: np.ndarray


class Texts(NamedTuple):
    """A text column, the tables that kernels read it with, and their scratch memory for one row."""

    data: np.ndarray  # uint8, UTF-8 in NFC
    offsets: np.ndarray  # int64[rows + 1]
    classes: np.ndarray  # as in Characters
    folds: np.ndarray
    factors: np.ndarray  # uint64[128], what an ASCII byte multiplies the hash of its word by: 0 ends the word
    blocks: np.ndarray  # uint64, the row's normalized text
    text: np.ndarray  # uint8, the same memory
    words: np.ndarray  # uint64, the hashes of the row's words or shingles


def texts(column: pa.Array, alone: int = 0) -> Texts:
    """Reads the column, with scratch memory for its longest row. `alone`: the classes of which each character
    is a word, ALONE and EAST_ASIAN.
    """
    data, offsets = normal_form(column)
    classes, folds = classes_with(alone), characters().folds
    longest = int(np.diff(offsets).max(initial=0))
    factors = np.where(classes[:128] & WORD, _PRIME, _ZERO)
    blocks = np.empty((GROWTH * longest + PADDING) // 8 + 1, np.uint64)
    words = np.empty(longest // 2 + 1, np.uint64)
    return Texts(data, offsets, classes, folds, factors, blocks, blocks.view(np.uint8), words)


def shingle_sets(documents: pa.RecordBatch, params: DedupParams) -> ShingleSets:
    """The shingles of each document, for the verification of candidates. MAX_CHARS limits signatures only.

    8 bytes for each distinct shingle, about 1.4 times the text. Linear time; the largest document sets the
    scratch memory, 7 times its bytes.
    """
    column = texts(documents.column("text"), alone=ALONE)
    table = np.zeros(len(column.words) * 5 // 2 + 2, np.uint64)
    size = int(column.offsets[-1] - column.offsets[0])
    ends = np.zeros(len(column.offsets), np.int64)
    hashes = np.empty(size // 2 + len(column.offsets), np.uint64)
    _sets(column, params.ngram, table, ends, hashes)
    return ShingleSets(ends, hashes[: ends[-1]].copy())


def concat_sets(parts: Sequence[ShingleSets]) -> ShingleSets:
    """The sets of several parts, one after the other."""
    sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
    hashes = np.concatenate([np.zeros(0, np.uint64), *(part.hashes for part in parts)])
    return ShingleSets(np.cumsum(sizes), hashes)


@borrowing
def normalize_row(texts: Texts, row: int) -> int:
    """Writes the row's normalized text to `blocks`; returns its bytes."""
    start, end = texts.offsets[row], texts.offsets[row + 1]
    return normalize(texts.data, start, end, texts.classes, texts.folds, texts.text)


@borrowing
def hash_words(texts: Texts, size: int) -> int:
    """Writes one 64-bit hash for each word of the `size` bytes in `blocks` to `words`; returns how many.

    A word is `[^\\W_]+`, so that Markdown's `_emphasis_` changes none. A combining mark continues it, and a
    character of the class ALONE begins one. A byte outside words has factor 0, so the hash ends there without
    a branch that the processor would mispredict.
    """
    text, out = texts.text, texts.words
    count, i, value = 0, 0, _ZERO
    while i < size:
        out[count] = value
        if text[i] < 0x80:
            factor, code = texts.factors[text[i]], np.uint64(text[i])
            i += 1
        else:
            point, width = decode(text, i, size)
            if texts.classes[point] & ALONE and value != _ZERO:
                count, value = count + 1, _ZERO
            inside = texts.classes[point] & WORD or (texts.classes[point] & MARK and value != _ZERO)
            factor, code = _PRIME if inside else _ZERO, np.uint64(point)
            i += width
        count += 1 if (value != _ZERO) & (factor == _ZERO) else 0
        value = (value ^ code) * factor
    out[count] = value
    count += 1 if value != _ZERO else 0
    for word in range(count):
        out[word] = mix64(out[word])
    return count


@borrowing
def polynomial(words: np.ndarray, first: int, length: int) -> tuple[np.uint64, np.uint64]:
    """The hash of `length` words, and the factor with which the first one leaves it."""
    value, top = _ZERO, np.uint64(1)
    for i in range(first, first + length):
        value = value * GOLDEN_RATIO + words[i]
        top *= GOLDEN_RATIO
    return value, top


@borrowing
def _combine(words: np.ndarray, count: int, ngram: int) -> None:
    """Replaces word hashes by the mixed rolling hashes of the n-grams that start at them."""
    value, top = polynomial(words, 0, ngram)
    for i in range(count - ngram):
        leaving = words[i]
        words[i] = mix64(value)
        value = value * GOLDEN_RATIO + words[i + ngram] - leaving * top
    words[count - ngram] = mix64(value)


@borrowing
def hash_shingles(texts: Texts, size: int, ngram: int) -> int:
    """Writes the shingle hashes (with repeats) of the `size` bytes in `blocks` to `words`; returns how many.

    `blocks` is zero for 16 bytes after `size`. Text of fewer than `ngram` words is one shingle, signs
    included, so "C++" is not "C#". Empty text has none.
    """
    count = hash_words(texts, size)
    if count >= ngram:
        _combine(texts.words, count, ngram)
        return count - ngram + 1
    if size:
        low, high = murmur128(texts.blocks, size)
        texts.words[0] = mix64(low ^ high)
    return min(size, 1)


@borrowing
def _distinct(hashes: np.ndarray, count: int, table: np.ndarray, out: np.ndarray, at: int) -> int:
    """Writes hashes[:count] sorted and distinct to `out` from `at`; returns the end.

    `table` has 5 * count // 2 + 2 zeros, before and after. Hashes are uniform, so one pass inserts them in
    order: their leading bits address the table, and probing keeps it sorted.
    """
    slots = np.uint64(count + count // 2 + 1)
    last = np.int64(0)
    for i in range(count):
        value = max(hashes[i], np.uint64(1))
        slot = np.int64(((value >> _HALF) * slots) >> _HALF)
        while table[slot] and table[slot] < value:
            slot += 1
        while table[slot] != value:
            displaced = table[slot]
            table[slot] = value
            if displaced == 0:
                break
            value = displaced
            slot += 1
        if slot > last:
            last = slot
    for filled in range(last + 1):
        if table[filled]:
            out[at] = table[filled]
            table[filled] = 0
            at += 1
    return at


@kernel
def _sets(texts: Texts, ngram: int, table: np.ndarray, ends: np.ndarray, hashes: np.ndarray) -> None:
    for row in range(len(texts.offsets) - 1):
        count = hash_shingles(texts, normalize_row(texts, row), ngram)
        ends[row + 1] = _distinct(texts.words, count, table, hashes, ends[row])
