"""From a text to the rows of the input matrix that stand for it: as fastText's src/dictionary.cc has it."""

from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.hashing import GOLDEN_RATIO
from pipeline.stages.text import equals

LEAST_ENTRY = 10  # bytes: the end of a word, how often it occurs, and whether it is a label
A_LABEL, UNKNOWN = -1, -2  # in place of a row, or of a number of rows
PENDING = 64  # rows
REMEMBERED = 1 << 22  # numbers: 16 MB
BITS_MASK = (1 << 18) - 1  # 256 KiB of bits stay in a core's cache
_BASIS, _PRIME = np.uint32(2166136261), np.uint32(16777619)
_EOS_KEY, _EOS_HASH = np.uint64(0x06C91E72766C2F1F), np.uint32(0xD79C9359)  # of `</s>`
_LABEL = np.frombuffer(b"__label__", np.uint8)
_FACTOR = np.uint64(116049371)
_1, _3, _7, _32 = np.uint64(1), np.uint64(3), np.uint64(7), np.uint64(32)
_LINE = np.uint64(16)  # float32 numbers
_OPEN, _CLOSE = np.uint8(ord("<")), np.uint8(ord(">"))
_SEPARATES = np.isin(np.arange(256), list(b" \n\r\t\v\f\0"))


class Table(NamedTuple):
    """Rows by keys of 64 bits. Most keys that are not in it are told by `bits` alone."""

    keys: np.ndarray  # uint64, see `_place`
    rows: np.ndarray  # int32, by the place of their key, or A_LABEL
    bits: np.ndarray  # uint8[BITS_MASK + 1], one bit for the low digits of each key


class Vocabulary(NamedTuple):
    """The words, and how n-grams become rows, which follow those of the words."""

    known: Table  # of words and labels, and by their number + 1 of n-grams that pruning kept
    words: int
    minn: int  # characters of an n-gram within a word
    maxn: int
    word_ngrams: int  # words of an n-gram
    bucket: int
    pruned: bool  # only n-grams that are `known` have rows


class Scratch(NamedTuple):
    """What `_add_text` leaves to the next text, and its buffers."""

    keys: np.ndarray  # of words met before, until another word takes their slot
    sums: np.ndarray  # of the rows of such a word; then `_add_word`'s count
    ngrams: np.ndarray  # entry n: the hash of the last n + 1 words
    pending: np.ndarray  # of a word


class Sum(NamedTuple):
    """Rows of `matrix` are added to `total`: those that are `pending` later, see `_add_later`."""

    matrix: np.ndarray
    pending: np.ndarray  # uint64[PENDING + 1]: how many, and then these rows
    total: np.ndarray


@kernel
def read_entries(file: np.ndarray, at: int, words: int, table: Table, labels: np.ndarray) -> int:
    """Enters words and labels, and where in the file each label starts and stops. Returns the position after
    them, or -1 where there are not as many words, and then labels.
    """
    for entry in range(words + len(labels)):
        stop, key, _ = _read_word(file, at, len(file))
        if stop + LEAST_ENTRY > len(file) or file[stop] or file[stop + 9] != (entry >= words):
            return -1
        _enter(table, key, entry if entry < words else A_LABEL)
        if entry >= words:
            labels[entry - words] = at, stop
        at = stop + LEAST_ENTRY
    return at


@kernel
def enter_ngrams(ngrams: np.ndarray, words: int, table: Table) -> None:
    for ngram, row in ngrams:
        _enter(table, np.uint64(ngram + 1), words + row)


@kernel
def add_texts(
    data: np.ndarray,
    offsets: np.ndarray,
    vocabulary: Vocabulary,
    matrix: np.ndarray,
    totals: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Adds the rows of each text to its row of `totals`, and tells how many they are."""
    dim = matrix.shape[1]
    slots = 1
    while 2 * slots * dim <= REMEMBERED:
        slots *= 2
    keys, sums = np.zeros(slots, np.uint64), np.empty((slots, dim + 1), np.float32)
    ngrams = np.zeros(vocabulary.word_ngrams + 1, np.uint64)
    pending = np.zeros((2, PENDING + 1), np.uint64)
    scratch = Scratch(keys, sums, ngrams, pending[0])
    for text in range(len(totals)):
        of_text = Sum(matrix, pending[1], totals[text])
        counts[text] = _add_text(data, offsets[text], offsets[text + 1], vocabulary, scratch, of_text)


@borrowing
def _add_text(
    data: np.ndarray, position: int, stop: int, vocabulary: Vocabulary, scratch: Scratch, of_text: Sum
) -> int:
    """Returns the number of rows."""
    keys, sums, ngrams, pending = scratch
    dim = np.uint64(sums.shape[1] - 1)  # unsigned, because numba checks a signed index for being negative
    count = words = 0
    key = _1
    while key != _EOS_KEY:
        start = position
        position, key, value = _read_word(data, start, stop)
        if start == position < stop:
            position += 1
            continue
        if start == position:
            key, value = _EOS_KEY, _EOS_HASH
        slot = np.uint64(_mixed(key) & (len(keys) - 1))
        if keys[slot] != key:
            keys[slot] = key
            for i in range(dim):
                sums[slot, i] = 0
            of_word = Sum(of_text.matrix, pending, sums[slot])
            sums[slot, dim] = _add_word(data, start, position, key, vocabulary, of_word)
        if sums[slot, dim] == A_LABEL:
            continue
        count += int(sums[slot, dim])
        for i in range(dim):
            of_text.total[i] += sums[slot, i]
        last = np.uint64(np.int32(value))
        for n in range(min(words, vocabulary.word_ngrams - 1), 0, -1):
            ngrams[n] = ngrams[n - 1] * _FACTOR + last
            count += _add_ngram(ngrams[n], vocabulary, of_text)
        ngrams[0] = last
        words += 1
    _add_pending(of_text)
    return count


@borrowing
def _add_word(
    data: np.ndarray, start: int, stop: int, key: np.uint64, vocabulary: Vocabulary, of_word: Sum
) -> int:
    """Adds the rows of a word and of the n-grams in it. Returns their number, or A_LABEL."""
    count = 0
    row = _row(vocabulary.known, key)
    if row >= 0:
        count = _add_later(row, of_word)
    elif row == A_LABEL or equals(data, start, stop, _LABEL):
        return A_LABEL
    # the word in angle brackets: byte i is data[before + i]
    before, last = start - 1, -1 if key == _EOS_KEY else stop - start + 1
    for first in range(last + 1):
        if 0 < first < last and data[before + first] & 0xC0 == 0x80:
            continue
        ngram, i, characters = _BASIS, first, 1
        while i <= last and characters <= vocabulary.maxn:
            ngram = _hashed(ngram, _OPEN if i == 0 else _CLOSE if i == last else data[before + i])
            i += 1
            if i < last and data[before + i] & 0xC0 == 0x80:
                continue
            if characters >= vocabulary.minn and not (characters == 1 and (first == 0 or i > last)):
                count += _add_ngram(np.uint64(ngram), vocabulary, of_word)
            characters += 1
    _add_pending(of_word)
    return count


@borrowing
def _add_ngram(value: np.uint64, vocabulary: Vocabulary, added: Sum) -> int:
    """Adds the row of an n-gram with this hash. Returns 0 if pruning removed it, else 1."""
    ngram = np.int64(value % np.uint64(vocabulary.bucket))
    row = vocabulary.words + ngram
    if vocabulary.pruned:
        row = _row(vocabulary.known, np.uint64(ngram + 1))
    return _add_later(row, added) if row >= 0 else 0


@borrowing
def _add_later(row: int, added: Sum) -> int:
    """Adds a row, with others, or leaves that to `_add_pending`. Returns 1."""
    pending = added.pending
    if pending[0] == PENDING:
        _add_pending(added)
    pending[0] += _1
    pending[pending[0]] = row
    return 1


@borrowing
def _add_pending(added: Sum) -> None:
    """Most rows are in memory only, and a core waits for many at a time if it reads one number of each cache
    line before all others.
    """
    matrix, pending, total = added
    dim, last = np.uint64(matrix.shape[1]), pending[0] + _1
    touched = np.float32(0)
    for one in range(_1, last):
        row = pending[one]
        for i in range(np.uint64(0), dim, _LINE):
            touched += matrix[row, i]
    total[0] += np.float32(0) * touched  # or the compiler would drop the loop
    for one in range(_1, last):
        row = pending[one]
        for i in range(dim):
            total[i] += matrix[row, i]
    pending[0] = 0


@borrowing
def _read_word(data: np.ndarray, position: int, stop: int) -> tuple[int, np.uint64, np.uint32]:
    """The end of the word that begins at `position`, a key of 64 bits and fastText's hash."""
    key, value = GOLDEN_RATIO, _BASIS
    while position < stop and not _SEPARATES[data[position]]:
        key = (key ^ np.uint64(data[position])) * GOLDEN_RATIO
        value = _hashed(value, data[position])
        position += 1
    return position, key, value


@borrowing
def _hashed(value: np.uint32, byte: np.uint8) -> np.uint32:
    """FNV-1a, 32 bits, of bytes with a sign, as in all models ever since the first were trained that way."""
    return np.uint32((value ^ np.uint32(np.int8(byte))) * _PRIME)


@borrowing
def _enter(table: Table, key: np.uint64, row: int) -> None:
    slot = _place(table.keys, key)
    table.keys[slot], table.rows[slot] = key, row
    table.bits[np.int64(key >> _3) & BITS_MASK] |= np.uint8(1 << (key & _7))


@borrowing
def _row(table: Table, key: np.uint64) -> int:
    if not table.bits[np.int64(key >> _3) & BITS_MASK] >> (key & _7) & 1:
        return UNKNOWN
    slot = _place(table.keys, key)
    return table.rows[slot] if table.keys[slot] else UNKNOWN


@borrowing
def _place(keys: np.ndarray, key: np.uint64) -> np.int64:
    """Where `key` is in `keys`, or where it would be: there is a 0. The length is a power of two."""
    at = _mixed(key) & (len(keys) - 1)
    while keys[at] != key and keys[at]:
        at = (at + 1) & (len(keys) - 1)
    return at


@borrowing
def _mixed(key: np.uint64) -> np.int64:
    return np.int64((key * GOLDEN_RATIO) >> _32)
