"""A document as the set of its word n-grams."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.stages.compiled import inner, kernel
from pipeline.stages.dedup.characters import MARK, WORD, characters
from pipeline.stages.dedup.hashing import mix64, murmur128
from pipeline.stages.dedup.normalise import GROWTH, PADDING, decode, normal_form, normalise
from pipeline.stages.dedup.params import DedupParams

_PRIME = np.uint64(0x9FB21C651E98DF25)
_BASE = np.uint64(0x9E3779B97F4A7C15)
_HALF, _ZERO = np.uint64(32), np.uint64(0)


class ShingleSets(NamedTuple):
    """Row i is `hashes[offsets[i]:offsets[i + 1]]`, ascending and distinct. `offsets`: int64[n + 1],
    `hashes`: uint64.
    """

    offsets: np.ndarray
    hashes: np.ndarray


def shingle_sets(documents: pa.RecordBatch, params: DedupParams) -> ShingleSets:
    """The shingles of each whole document (`max_chars` limits signatures, never the evidence), to verify
    candidates with.

    8 bytes for each distinct shingle, about 1.4 times the text. Linear time; the largest document sets the
    scratch memory, 7 times its bytes.
    """
    data, offsets = normal_form(documents.column("text"))
    classes, folds = characters()
    blocks = text_scratch(offsets)
    shingles = np.empty(longest(offsets) // 2 + 1, np.uint64)
    table = np.zeros(len(shingles) * 5 // 2 + 2, np.uint64)
    ends, hashes = (
        np.zeros(len(offsets), np.int64),
        np.empty(int(offsets[-1] - offsets[0]) // 2 + len(offsets), np.uint64),
    )
    _sets(
        data,
        offsets,
        classes,
        folds,
        word_factors(classes),
        params.ngram,
        blocks,
        shingles,
        table,
        ends,
        hashes,
    )
    return ShingleSets(ends, hashes[: ends[-1]].copy())


def concat_sets(parts: Sequence[ShingleSets]) -> ShingleSets:
    """The sets of several parts, one after the other."""
    sizes = [np.diff(part.offsets) for part in parts]
    offsets = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.concatenate([np.zeros(0, np.int64), *sizes]))]
    )
    return ShingleSets(offsets, np.concatenate([np.zeros(0, np.uint64), *(part.hashes for part in parts)]))


def word_factors(classes: np.ndarray) -> np.ndarray:
    """What an ASCII byte multiplies the hash of its word by, uint64[128]: 0 ends the word."""
    return np.where(classes[:128] & WORD, _PRIME, _ZERO)


def text_scratch(offsets: np.ndarray) -> np.ndarray:
    """Room for any row's normalised text: uint64, so that it can be hashed by blocks; its uint8 view is
    the text.
    """
    return np.empty((GROWTH * longest(offsets) + PADDING) // 8 + 1, np.uint64)


def longest(offsets: np.ndarray) -> int:
    """Bytes of the longest row."""
    return int(np.diff(offsets).max(initial=0))


@inner
def hash_words(text: np.ndarray, size: int, classes: np.ndarray, factors: np.ndarray, out: np.ndarray) -> int:
    """One 64-bit hash for each word of text[:size] to `out`; returns how many. A word is `\\w+`; a combining
    mark continues it.

    A byte outside words has factor 0: the hash ends there without a branch that a processor could guess
    wrong.
    """
    count, i, value = 0, 0, _ZERO
    while i < size:
        out[count] = value
        if text[i] < 0x80:
            factor, code = factors[text[i]], np.uint64(text[i])
            i += 1
        else:
            point, width = decode(text, i, size)
            inside = classes[point] & WORD or (classes[point] & MARK and value != _ZERO)
            factor, code = _PRIME if inside else _ZERO, np.uint64(point)
            i += width
        count += 1 if (value != _ZERO) & (factor == _ZERO) else 0
        value = (value ^ code) * factor
    out[count] = value
    count += 1 if value != _ZERO else 0
    for word in range(count):
        out[word] = mix64(out[word])
    return count


@inner
def _combine(words: np.ndarray, count: int, ngram: int) -> None:
    """Replaces word hashes by those of the n-grams that start at them: a rolling polynomial in 2^64, then
    mixed.
    """
    top, value = np.uint64(1), np.uint64(0)
    for i in range(ngram):
        value = value * _BASE + words[i]
        top *= _BASE
    for i in range(count - ngram):
        leaving = words[i]
        words[i] = mix64(value)
        value = value * _BASE + words[i + ngram] - leaving * top
    words[count - ngram] = mix64(value)


@inner
def hash_shingles(
    blocks: np.ndarray,
    text: np.ndarray,
    size: int,
    classes: np.ndarray,
    factors: np.ndarray,
    ngram: int,
    out: np.ndarray,
) -> int:
    """Shingle hashes (with repeats) of the normalised text[:size] to `out` (size // 2 + 1); returns how many.

    `blocks` is the same memory in uint64, zero for 16 bytes after `size`. Text of fewer than `ngram` words is
    one shingle, all of it, signs included, so "C++" is not "C#". Empty text has none.
    """
    count = hash_words(text, size, classes, factors, out)
    if count >= ngram:
        _combine(out, count, ngram)
        return count - ngram + 1
    if size:
        low, high = murmur128(blocks, size)
        out[0] = mix64(low ^ high)
    return min(size, 1)


@inner
def _distinct(hashes: np.ndarray, count: int, table: np.ndarray, out: np.ndarray, at: int) -> int:
    """Writes hashes[:count] sorted and distinct to `out` from `at`; returns the end. `table`: zeros, 5 *
    count // 2 + 2; zeros again after.

    Insertion into a table addressed by the leading bits, with probing that keeps it in order: one pass, since
    hashes are uniform.
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
def _sets(
    data: np.ndarray,
    offsets: np.ndarray,
    classes: np.ndarray,
    folds: np.ndarray,
    factors: np.ndarray,
    ngram: int,
    blocks: np.ndarray,
    shingles: np.ndarray,
    table: np.ndarray,
    ends: np.ndarray,
    hashes: np.ndarray,
) -> None:
    text = blocks.view(np.uint8)
    for row in range(len(offsets) - 1):
        size = normalise(data, offsets[row], offsets[row + 1], classes, folds, text)
        count = hash_shingles(blocks, text, size, classes, factors, ngram, shingles)
        ends[row + 1] = _distinct(shingles, count, table, hashes, ends[row])
