"""Repeated words, n-grams, lines and paragraphs (Gopher's repetition rules, FineWeb's duplicate lines)."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.hashing import GOLDEN_RATIO
from pipeline.stages.quality.octets import bytes_hash, hash_and_characters, next_newline
from pipeline.stages.quality.unicode import SPACE
from pipeline.stages.quality.walk import Words
from pipeline.stages.text import first_word, last_word_end

TOP_SIZES = (2, 3, 4)  # words; the most frequent n-gram
DUPLICATE_SIZES = (5, 6, 7, 8, 9, 10)  # words; n-grams that occurred before
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class Repetition(IntEnum):
    """Columns of the result of `repetition`; characters are summed as datatrove 0.10 sums them."""

    UNIQUE_WORDS = 0
    STOP_WORDS = 1  # distinct ones
    TOP_2_CHARACTERS = 2  # of the most frequent pair of words, one space between them, times its count
    TOP_3_CHARACTERS = 3
    TOP_4_CHARACTERS = 4
    TOP_2_COUNT = 5
    TOP_3_COUNT = 6
    TOP_4_COUNT = 7
    DUPLICATE_5_CHARACTERS = 8  # of runs of 5 words seen before, without spaces, never counting a word twice
    DUPLICATE_6_CHARACTERS = 9
    DUPLICATE_7_CHARACTERS = 10
    DUPLICATE_8_CHARACTERS = 11
    DUPLICATE_9_CHARACTERS = 12
    DUPLICATE_10_CHARACTERS = 13
    LINES = 14  # of re.split("\n+"), where lines of white space are empty, unlike in datatrove
    DUPLICATE_LINES = 15
    DUPLICATE_LINE_CHARACTERS = 16
    PARAGRAPHS = 17  # of re.split("\n{2,}") on the stripped text
    DUPLICATE_PARAGRAPHS = 18
    DUPLICATE_PARAGRAPH_CHARACTERS = 19


# The first column of each group, of n-grams of the least size.
_TOP, _TOP_COUNT = Repetition.TOP_2_CHARACTERS.value, Repetition.TOP_2_COUNT.value
_DUPLICATE = Repetition.DUPLICATE_5_CHARACTERS.value
_STOP_WORD_HASHES = np.array([bytes_hash(word.encode()) for word in STOP_WORDS], np.uint64)
_FIRST_DUPLICATE, _LAST_DUPLICATE = DUPLICATE_SIZES[0], DUPLICATE_SIZES[-1]
_NEWLINE = 0x0A
_HALF = np.uint64(32)


class Numbering(NamedTuple):
    """Scratch of `_number`: a hash table, and its results for each item."""

    keys: np.ndarray  # uint64, of each item, set by the caller; then of each id
    ids: np.ndarray  # int32, of each item
    counts: np.ndarray  # int32, of each id
    slot_ids: np.ndarray  # int32, a power of two, at least twice as many as items
    positions: np.ndarray  # int32, of each n-gram: its first word
    lengths: np.ndarray  # int32, of each line or paragraph: its characters

    @classmethod
    def over(cls, keys: np.ndarray) -> "Numbering":
        """Room for as many items as `keys`, which it overwrites; the hash table is at most half full."""
        size = keys.size
        slots = 1 << (2 * size - 1).bit_length()
        return cls(
            keys=keys,
            ids=np.empty(size, np.int32),
            counts=np.empty(size, np.int32),
            slot_ids=np.empty(slots, np.int32),
            positions=np.empty(size, np.int32),
            lengths=np.empty(size, np.int32),
        )


@borrowing
def repetition(
    data: np.ndarray, classes: np.ndarray, words: Words, size: int, table: Numbering, row: np.ndarray
) -> None:
    """Fills the `row` of the document `data`, whose `size` words are known and their hashes in `table.keys`.

    Counts are exact, except that 64-bit hashes distinguish words, lines and paragraphs.

    The items of each kind take the place of those before them in `table`; `_number` gives them ids:
    - Words. `_has` looks words up while `slot_ids` still has their slots.
    - N-grams, from pairs upwards. `_pair_repeated` makes the keys of one size from the `ids`, `counts` and
      `positions` of the size below. `_duplicate_characters` then takes `slot_ids` for marks.
    - Lines, then paragraphs, with their `lengths`.
    """
    unique = _number(table, size)
    row[Repetition.UNIQUE_WORDS] = unique
    for stop_word in _STOP_WORD_HASHES:
        row[Repetition.STOP_WORDS] += _has(table, size, stop_word)
    _ngrams(words, size, table, row)
    _lines(data, classes, table, row)
    _paragraphs(data, classes, table, row)


@borrowing
def _slots(size: int) -> tuple[int, np.uint64]:
    """The last slot of the hash table for `size` items, and the shift that takes a hash to its slot."""
    bits = 2
    while 1 << bits < 2 * size:
        bits += 1
    return (1 << bits) - 1, np.uint64(64 - bits)


@borrowing
def _slot_of(table: Numbering, key: np.uint64, last: int, shift: np.uint64) -> np.int64:
    """The slot with the id of `key`, or the free one where it belongs."""
    slot = np.int64(key * GOLDEN_RATIO >> shift)
    while table.slot_ids[slot] >= 0 and table.keys[table.slot_ids[slot]] != key:
        slot = (slot + 1) & last
    return slot


@borrowing
def _number(table: Numbering, size: int) -> int:
    """Numbers the distinct `keys[:size]` by first occurrence, in `ids` and `counts`; returns how many.

    Moves the distinct keys to the front of `keys`, in the order of their numbers.
    """
    last, shift = _slots(size)
    table.slot_ids[: last + 1] = -1
    unique = 0
    for i in range(size):
        key = table.keys[i]
        slot = _slot_of(table, key, last, shift)
        found = table.slot_ids[slot]
        if found < 0:
            found = table.slot_ids[slot] = unique
            table.keys[unique] = key
            table.counts[unique] = 0
            unique += 1
        table.ids[i] = found
        table.counts[found] += 1
    return unique


@borrowing
def _has(table: Numbering, size: int, key: np.uint64) -> bool:
    """Whether `key` is among those that `_number` has just numbered."""
    return table.slot_ids[_slot_of(table, key, *_slots(size))] >= 0


@borrowing
def _ngrams(words: Words, size: int, table: Numbering, row: np.ndarray) -> None:
    """Fills all n-gram columns.

    An n-gram can occur twice only where both (n - 1)-grams in it do, so each size reads only the repeated
    n-grams of the last one.
    """
    remaining = size
    for i in range(size):
        table.positions[i] = i
    for n in range(2, _LAST_DUPLICATE + 1):
        remaining = _pair_repeated(table, remaining)
        unique = _number(table, remaining)
        if n >= _FIRST_DUPLICATE:
            row[_DUPLICATE + n - _FIRST_DUPLICATE] = _duplicate_characters(words, n, remaining, unique, table)
        elif size >= n:
            _top(words, n, unique, table, row)


@borrowing
def _pair_repeated(table: Numbering, size: int) -> int:
    """Replaces the (n - 1)-grams at `positions[:size]` by the n-grams made of two repeated ones.

    Fills `keys` and `positions`; returns how many.
    """
    # Each is written and counted if it stays: a branch would be mispredicted at every other word.
    repeated = 0
    for i in range(size):
        table.positions[repeated], table.ids[repeated] = table.positions[i], table.ids[i]
        repeated += table.counts[table.ids[i]] > 1
    pairs = 0
    for i in range(repeated - 1):
        position = table.positions[i]
        table.keys[pairs] = np.uint64(table.ids[i]) << _HALF | np.uint64(table.ids[i + 1])
        table.positions[pairs] = position
        pairs += table.positions[i + 1] == position + 1
    return pairs


@borrowing
def _top(words: Words, n: int, unique: int, table: Numbering, row: np.ndarray) -> None:
    """Fills the columns of the most frequent n-gram, the first of several. If none occurs twice, it is the
    first n-gram (as datatrove).
    """
    best, most, position = 0, 1, 0
    for i in range(unique):
        if table.counts[i] > most:
            best, most = i, table.counts[i]
    if most > 1:
        first = 0
        while table.ids[first] != best:
            first += 1
        position = table.positions[first]
    row[_TOP + n - 2] = (words.characters[position + n] - words.characters[position] + n - 1) * most
    row[_TOP_COUNT + n - 2] = most


@borrowing
def _duplicate_characters(words: Words, n: int, size: int, unique: int, table: Numbering) -> int:
    """The characters of n-grams that occurred before, from left to right. No word counts twice."""
    seen = table.slot_ids  # free until the next numbering
    seen[:unique] = 0
    characters = next_word = 0
    for i in range(size):
        position = table.positions[i]
        if position < next_word:
            continue
        if seen[table.ids[i]]:
            next_word = position + n
            characters += words.characters[next_word] - words.characters[position]
        seen[table.ids[i]] = 1
    return characters


@borrowing
def _repeats(table: Numbering, size: int) -> tuple[int, int]:
    """How many of the items `keys[:size]` repeat an earlier one, and their characters."""
    _number(table, size)
    new_id = repeats = characters = 0
    for i in range(size):
        if table.ids[i] == new_id:
            new_id += 1
        else:
            repeats += 1
            characters += table.lengths[i]
    return repeats, characters


@borrowing
def _lines(data: np.ndarray, classes: np.ndarray, table: Numbering, row: np.ndarray) -> None:
    """Fills the columns of lines. The split leaves an empty line before a leading run of newlines, and one
    after a trailing run.
    """
    lines, first_is_blank, last_is_blank = _split_lines(data, classes, table)
    repeats, characters = _repeats(table, lines)
    only_one = first_is_blank and next_newline(data, 0, data.size) == data.size
    row[Repetition.LINES] = lines + first_is_blank + last_is_blank - only_one
    row[Repetition.DUPLICATE_LINES] = repeats + (first_is_blank and last_is_blank and not only_one)
    row[Repetition.DUPLICATE_LINE_CHARACTERS] = characters


@borrowing
def _split_lines(data: np.ndarray, classes: np.ndarray, table: Numbering) -> tuple[int, bool, bool]:
    """Fills `keys` and `lengths` for the lines of more than white space; returns how many, and whether the
    first and the last line are blank.
    """
    lines = start = 0
    first_is_blank = is_blank = True
    while start < data.size:
        end = next_newline(data, start, data.size)
        is_blank = first_word(data, start, end, classes, SPACE) >= end
        if start == 0:
            first_is_blank = is_blank
        if not is_blank:
            table.keys[lines], table.lengths[lines] = hash_and_characters(data, start, end)
            lines += 1
        start = end + 1
    return lines, first_is_blank, is_blank or data[data.size - 1] == _NEWLINE


@borrowing
def _paragraphs(data: np.ndarray, classes: np.ndarray, table: Numbering, row: np.ndarray) -> None:
    """Fills the columns of paragraphs."""
    start = first_word(data, 0, data.size, classes, SPACE)
    stop = last_word_end(data, start, data.size, classes, SPACE)
    paragraphs = _split_paragraphs(data, start, stop, table)
    repeats, characters = _repeats(table, paragraphs)
    row[Repetition.PARAGRAPHS] = paragraphs
    row[Repetition.DUPLICATE_PARAGRAPHS] = repeats
    row[Repetition.DUPLICATE_PARAGRAPH_CHARACTERS] = characters


@borrowing
def _split_paragraphs(data: np.ndarray, start: int, stop: int, table: Numbering) -> int:
    """Fills `keys` and `lengths` for the paragraphs of stripped text; returns how many."""
    paragraphs = 0
    paragraph_start = position = start
    while position <= stop:
        position, newlines = next_newline(data, position, stop), 0
        while position + newlines < stop and data[position + newlines] == _NEWLINE:
            newlines += 1
        if newlines > 1 or position == stop:
            hashed, characters = hash_and_characters(data, paragraph_start, position)
            table.keys[paragraphs], table.lengths[paragraphs] = hashed, characters
            paragraphs += 1
            paragraph_start = position + newlines
        position += max(newlines, 1)
    return paragraphs
