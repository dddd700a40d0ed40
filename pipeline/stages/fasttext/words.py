"""From a word to the rows of the input matrix that stand for it: as fastText's src/dictionary.cc has it."""

from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.text import equals

CENTROIDS = 256  # a byte names one of them
KEPT_MASK = (1 << 18) - 1  # 256 KiB of bits stay in a core's cache


class Matrix(NamedTuple):
    """The input matrix. If it is quantised, `rows` is empty: row i is `norms[i]` (or 1) times the centroids
    that `codes[i * groups:(i + 1) * groups]` name, each `width` numbers of the row, the last one the rest.
    """

    rows: np.ndarray  # float32[rows * dim]
    codes: np.ndarray  # uint8[rows * groups]
    centroids: np.ndarray  # float32[CENTROIDS * dim], group by group
    norms: np.ndarray  # float32[rows], or empty
    dim: int
    width: int


class Vocabulary(NamedTuple):
    """The words and labels, and how n-grams become rows, which follow those of the words."""

    keys: np.ndarray  # uint64, see `place`
    entries: np.ndarray  # int32, words and then labels, by the place of their key
    words: int
    minn: int  # characters of an n-gram within a word
    maxn: int
    word_ngrams: int  # words of an n-gram
    bucket: int
    pruned: bool
    kept: np.ndarray  # uint64, the n-grams that pruning kept, plus 1; see `place`
    kept_rows: np.ndarray  # int32
    kept_bits: np.ndarray  # uint8, a bit for the low digits of each, which tells most that are not kept


_KEY, _BASIS, _PRIME = np.uint64(0x9E3779B97F4A7C15), np.uint32(2166136261), np.uint32(16777619)
_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
LINE = np.uint64(16)  # float32 numbers
PENDING = 64
_OPEN, _CLOSE = np.uint8(ord("<")), np.uint8(ord(">"))
_LABEL = np.frombuffer(b"__label__", np.uint8)
_SEPARATES = np.isin(np.arange(256), list(b" \n\r\t\v\f\0"))
EOS_KEY, EOS_HASH = np.uint64(0x06C91E72766C2F1F), np.uint32(0xD79C9359)
A_LABEL = -1  # in place of a number of rows


@borrowing
def _hashed(value: np.uint32, byte: np.uint8) -> np.uint32:
    """FNV-1a, 32 bits, of bytes with a sign, as in all models ever since the first were trained that way."""
    return np.uint32((value ^ np.uint32(np.int8(byte))) * _PRIME)


@borrowing
def read_word(data: np.ndarray, position: int, stop: int) -> tuple[int, np.uint64, np.uint32]:
    """The end of the word that begins at `position`, a key of 64 bits and fastText's hash."""
    key, value = _KEY, _BASIS
    while position < stop and not _SEPARATES[data[position]]:
        key = (key ^ np.uint64(data[position])) * _KEY
        value = _hashed(value, data[position])
        position += 1
    return position, key, value


@borrowing
def place(keys: np.ndarray, key: np.uint64) -> np.int64:
    """Where `key` is in `keys`, or where it would be: there is a 0. The length is a power of two."""
    mask = len(keys) - 1
    at = np.int64((key * _KEY) >> _32) & mask
    while keys[at] != key and keys[at]:
        at = (at + 1) & mask
    return at


@borrowing
def add_word(
    data: np.ndarray, start: int, stop: int, key: np.uint64, known: Vocabulary, matrix: Matrix,
    pending: np.ndarray, total: np.ndarray, at: np.uint64,
) -> int:  # fmt: skip
    """Adds the rows of the word `data[start:stop]` and of the n-grams in it to `total[at:at + dim]`.

    Returns their number, or A_LABEL.
    """
    found = place(known.keys, key)
    rows = 0
    if known.keys[found]:
        if known.entries[found] >= known.words:
            return A_LABEL
        rows = add_later(known.entries[found], matrix, pending, total, at)
    elif equals(data, start, stop, _LABEL):
        return A_LABEL
    # the word in angle brackets: byte i is data[before + i]
    before, last = start - 1, -1 if key == EOS_KEY else stop - start + 1
    for first in range(last + 1):
        if 0 < first < last and data[before + first] & 0xC0 == 0x80:
            continue
        ngram, i, characters = _BASIS, first, 1
        while i <= last and characters <= known.maxn:
            ngram = _hashed(ngram, _OPEN if i == 0 else _CLOSE if i == last else data[before + i])
            i += 1
            if i < last and data[before + i] & 0xC0 == 0x80:
                continue
            if characters >= known.minn and not (characters == 1 and (first == 0 or i > last)):
                rows += add_ngram(np.uint64(ngram), known, matrix, pending, total, at)
            characters += 1
    add_pending(matrix, pending, total, at)
    return rows


@borrowing
def add_ngram(
    value: np.uint64, known: Vocabulary, matrix: Matrix, pending: np.ndarray, total: np.ndarray, at: np.uint64
) -> int:
    """Adds the row of an n-gram with this hash. Returns 0 if pruning removed it, else 1."""
    row = np.int64(value % np.uint64(known.bucket))
    if known.pruned:
        if not known.kept_bits[row >> 3 & KEPT_MASK] >> (row & 7) & 1:
            return 0
        found = place(known.kept, np.uint64(row + 1))
        if not known.kept[found]:
            return 0
        row = np.int64(known.kept_rows[found])
    return add_later(known.words + row, matrix, pending, total, at)


@borrowing
def add_later(row: int, matrix: Matrix, pending: np.ndarray, total: np.ndarray, at: np.uint64) -> int:
    """Puts a row to those that `add_pending` adds. Returns 1. The number of rows precedes them in `pending`:
    uint64[PENDING + 1]
    """
    if pending[0] == PENDING:
        add_pending(matrix, pending, total, at)
    pending[0] += _1
    pending[pending[0]] = row
    return 1


@borrowing
def add_pending(matrix: Matrix, pending: np.ndarray, total: np.ndarray, at: np.uint64) -> None:
    """Adds rows to `total[at:at + dim]`. Most are in memory only, and a core waits for many at a time if it
    reads one number of each cache line before all others.
    """
    # unsigned, because numba checks a signed index for being negative
    dim, width, count = np.uint64(matrix.dim), np.uint64(matrix.width), pending[0]
    pending[0] = 0
    if not len(matrix.codes):
        touched = np.float32(0)
        for one in range(_1, count + _1):
            first = pending[one] * dim
            for i in range(first, first + dim, LINE):
                touched += matrix.rows[i]
        total[at] += np.float32(0) * touched  # or the compiler would drop the loop
        for one in range(_1, count + _1):
            first = pending[one] * dim
            for i in range(dim):
                total[at + i] += matrix.rows[first + i]
        return
    groups = (dim + width - _1) // width
    for one in range(_1, count + _1):
        row = pending[one]
        norm = matrix.norms[row] if len(matrix.norms) else np.float32(1)
        for group in range(groups):
            begin = group * width
            size = min(width, dim - begin)
            first = begin * np.uint64(CENTROIDS) + size * np.uint64(matrix.codes[row * groups + group])
            for i in range(size):
                total[at + begin + i] += norm * matrix.centroids[first + i]
