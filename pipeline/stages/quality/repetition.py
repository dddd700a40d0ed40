"""How much of a document repeats itself: words, n-grams of words, lines and paragraphs (Gopher's repetition rules, FineWeb's duplicate lines)."""

from enum import IntEnum

import numpy as np

from pipeline.stages.quality.compiled import kernel, part
from pipeline.stages.quality.unicode import SPACE, decode, first_word, last_word_end

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
    LINES = 14  # of re.split("\n+")
    DUPLICATE_LINES = 15
    DUPLICATE_LINE_CHARACTERS = 16
    DUPLICATE_TEXT_LINE_CHARACTERS = 17  # only lines of more than white space
    PARAGRAPHS = 18  # of re.split("\n{2,}") on the stripped text
    DUPLICATE_PARAGRAPHS = 19
    DUPLICATE_PARAGRAPH_CHARACTERS = 20


_COLUMNS = len(Repetition)
_TOP, _TOP_COUNT, _DUPLICATE = Repetition.TOP_2_CHARACTERS.value, Repetition.TOP_2_COUNT.value, Repetition.DUPLICATE_5_CHARACTERS.value
_FIRST_DUPLICATE, _LAST_DUPLICATE = DUPLICATE_SIZES[0], DUPLICATE_SIZES[-1]
_NEWLINE = 0x0A
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
_HALF = np.uint64(32)


@kernel
def text_hash(data: np.ndarray, start: int, stop: int) -> np.uint64:
    """64 bits that stand for the bytes `data[start:stop]`: among a million words, two different ones share them with probability 3e-8."""
    value = np.uint64(stop - start) * _PRIME
    position, end = np.uint64(start), np.uint64(stop)  # unsigned, because numba checks a signed index for being negative
    while position + np.uint64(8) <= end:
        value = (value ^ _eight_bytes(data, position)) * _PRIME
        value ^= value >> _HALF
        position += np.uint64(8)
    rest = np.uint64(0)
    while position < end:
        rest = rest << np.uint64(8) | np.uint64(data[position])
        position += np.uint64(1)
    value = (value ^ rest) * _PRIME
    return value ^ value >> _HALF


@part
def _eight_bytes(data: np.ndarray, position: np.uint64) -> np.uint64:
    low = np.uint64(data[position]) | np.uint64(data[position + np.uint64(1)]) << np.uint64(8)
    low |= np.uint64(data[position + np.uint64(2)]) << np.uint64(16) | np.uint64(data[position + np.uint64(3)]) << np.uint64(24)
    high = np.uint64(data[position + np.uint64(4)]) | np.uint64(data[position + np.uint64(5)]) << np.uint64(8)
    high |= np.uint64(data[position + np.uint64(6)]) << np.uint64(16) | np.uint64(data[position + np.uint64(7)]) << np.uint64(24)
    return low | high << _HALF


def stop_word_hashes() -> np.ndarray:
    """uint64[len(STOP_WORDS)]."""
    encoded = (np.frombuffer(word.encode(), np.uint8) for word in STOP_WORDS)
    return np.array([text_hash(word, 0, word.size) for word in encoded], np.uint64)


@kernel
def repetition(data: np.ndarray, offsets: np.ndarray, classes: np.ndarray, stop_words: np.ndarray) -> np.ndarray:
    """int64[documents, len(Repetition)]. Time is linear in the text; beside the result, at most 34 bytes per byte of the longest document.

    Counts are exact but for words, lines and paragraphs being told apart by 64-bit hashes.
    """
    repeated = np.zeros((offsets.size - 1, _COLUMNS), np.int64)
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    # Scratch for the longest document; the others use the front of it, so what is not needed is never touched.
    items = longest // 2 + 2
    slot_bits = 2
    while 1 << slot_bits < 2 * items:
        slot_bits += 1
    keys = np.empty(items, np.uint64)
    ids = np.empty(items, np.int32)
    counts = np.empty(items, np.int32)
    positions = np.empty(items, np.int32)
    ends = np.empty(items + 1, np.int64)
    slot_keys = np.empty(1 << slot_bits, np.uint64)
    slot_ids = np.empty(1 << slot_bits, np.int32)
    for row in range(offsets.size - 1):
        start, stop = offsets[row], offsets[row + 1]
        words = _split_words(data, start, stop, classes, keys, ends)
        unique = _intern(keys, words, ids, counts, slot_keys, slot_ids)
        repeated[row, 0] = unique
        repeated[row, 1] = _distinct_stop_words(keys, ids, words, stop_words)
        _ngrams(words, unique, keys, ids, counts, positions, ends, slot_keys, slot_ids, repeated[row])
        _lines(data, start, stop, classes, keys, ids, counts, ends, slot_keys, slot_ids, repeated[row])
        _paragraphs(data, start, stop, classes, keys, ids, counts, ends, slot_keys, slot_ids, repeated[row])
    return repeated


@part
def _split_words(data: np.ndarray, start: int, stop: int, classes: np.ndarray, keys: np.ndarray, ends: np.ndarray) -> int:
    """The words of str.split(): their number, hashes (`keys`) and lengths in characters, summed up to each word (`ends[i]` is before word i)."""
    words = 0
    ends[0] = 0
    length = 0
    word_start = position = start
    while position < stop:
        if data[position] < 0x80:
            flags, width = classes[data[position]], 1
        else:
            code_point, width = decode(data, position, stop)
            flags = classes[code_point]
        if flags & SPACE:
            if length:
                keys[words] = text_hash(data, word_start, position)
                words += 1
                ends[words] = ends[words - 1] + length
                length = 0
            word_start = position + width
        else:
            length += 1
        position += width
    if length:
        keys[words] = text_hash(data, word_start, stop)
        words += 1
        ends[words] = ends[words - 1] + length
    return words


@part
def _intern(keys: np.ndarray, size: int, ids: np.ndarray, counts: np.ndarray, slot_keys: np.ndarray, slot_ids: np.ndarray) -> int:
    """Numbers the distinct `keys[:size]` by first occurrence: `ids` of each, `counts` of each id; returns how many there are."""
    bits = 2
    while 1 << bits < 2 * size:
        bits += 1
    mask = (1 << bits) - 1
    shift = np.uint64(64 - bits)
    slot_ids[: mask + 1] = -1
    unique = 0
    for i in range(size):
        slot = np.int64(keys[i] * _PRIME >> shift)
        while slot_ids[slot] >= 0 and slot_keys[slot] != keys[i]:
            slot = (slot + 1) & mask
        if slot_ids[slot] < 0:
            slot_ids[slot] = unique
            slot_keys[slot] = keys[i]
            counts[unique] = 0
            unique += 1
        ids[i] = slot_ids[slot]
        counts[ids[i]] += 1
    return unique


@part
def _distinct_stop_words(keys: np.ndarray, ids: np.ndarray, words: int, stop_words: np.ndarray) -> int:
    found = 0
    new_id = 0
    for i in range(words):
        if ids[i] == new_id:
            new_id += 1
            for stop_word in stop_words:
                found += keys[i] == stop_word
    return found


@part
def _ngrams(
    words: int,
    unique: int,
    keys: np.ndarray,
    ids: np.ndarray,
    counts: np.ndarray,
    positions: np.ndarray,
    ends: np.ndarray,
    slot_keys: np.ndarray,
    slot_ids: np.ndarray,
    row: np.ndarray,
) -> None:
    """All n-gram columns. An n-gram can occur twice only where both (n - 1)-grams in it do, so each size looks only at what the last one left."""
    size = words
    for i in range(words):
        positions[i] = i
    for n in range(2, _LAST_DUPLICATE + 1):
        repeats = 0
        for i in range(size):
            if counts[ids[i]] > 1:
                positions[repeats], ids[repeats] = positions[i], ids[i]
                repeats += 1
        size = 0
        for i in range(repeats - 1):
            if positions[i + 1] == positions[i] + 1:
                keys[size] = np.uint64(ids[i]) << _HALF | np.uint64(ids[i + 1])
                positions[size] = positions[i]
                size += 1
        unique = _intern(keys, size, ids, counts, slot_keys, slot_ids)
        if n < _FIRST_DUPLICATE:
            if words >= n:
                _top(n, size, unique, ids, counts, positions, ends, row)
        else:
            row[_DUPLICATE + n - _FIRST_DUPLICATE] = _duplicate_characters(n, size, unique, ids, positions, ends, slot_ids)


@part
def _top(n: int, size: int, unique: int, ids: np.ndarray, counts: np.ndarray, positions: np.ndarray, ends: np.ndarray, row: np.ndarray) -> None:
    """The most frequent n-gram, the first of several such; where none occurs twice, the document's first (as in datatrove)."""
    best, most = 0, 1
    for i in range(unique):
        if counts[i] > most:
            best, most = i, counts[i]
    position = 0
    if most > 1:
        i = 0
        while ids[i] != best:
            i += 1
        position = positions[i]
    row[_TOP + n - 2] = (ends[position + n] - ends[position] + n - 1) * most
    row[_TOP_COUNT + n - 2] = most


@part
def _duplicate_characters(n: int, size: int, unique: int, ids: np.ndarray, positions: np.ndarray, ends: np.ndarray, seen: np.ndarray) -> int:
    """Walks the n-grams from left to right; after one that was seen before, goes on behind its last word."""
    seen[:unique] = 0
    characters = 0
    resume = 0
    for i in range(size):
        position = positions[i]
        if position >= resume:
            if seen[ids[i]]:
                characters += ends[position + n] - ends[position]
                resume = position + n
            else:
                seen[ids[i]] = 1
    return characters


@part
def _characters(data: np.ndarray, start: int, stop: int) -> int:
    characters = 0
    for position in range(start, stop):
        characters += data[position] & 0xC0 != 0x80
    return characters


@part
def _lines(
    data: np.ndarray,
    start: int,
    stop: int,
    classes: np.ndarray,
    keys: np.ndarray,
    ids: np.ndarray,
    counts: np.ndarray,
    lengths: np.ndarray,
    slot_keys: np.ndarray,
    slot_ids: np.ndarray,
    row: np.ndarray,
) -> None:
    lines = 0
    line_start = start
    for position in range(start, stop + 1):
        if position == stop or data[position] == _NEWLINE:
            if position > line_start:
                keys[lines] = text_hash(data, line_start, position)
                characters = _characters(data, line_start, position)
                # A line of white space alone has its length negated.
                lengths[lines] = characters if first_word(data, line_start, position, classes) < position else -characters
                lines += 1
            line_start = position + 1
    _intern(keys, lines, ids, counts, slot_keys, slot_ids)
    new_id = 0
    for i in range(lines):
        if ids[i] == new_id:
            new_id += 1
        else:
            row[15] += 1
            row[16] += abs(lengths[i])
            row[17] += max(lengths[i], 0)
    # The split leaves an empty line before a leading run of newlines and one behind a trailing run.
    begins, ends = start == stop or data[start] == _NEWLINE, start == stop or data[stop - 1] == _NEWLINE
    row[14] = lines + begins + ends - (start == stop)
    row[15] += begins and ends and start < stop


@part
def _paragraphs(
    data: np.ndarray,
    start: int,
    stop: int,
    classes: np.ndarray,
    keys: np.ndarray,
    ids: np.ndarray,
    counts: np.ndarray,
    lengths: np.ndarray,
    slot_keys: np.ndarray,
    slot_ids: np.ndarray,
    row: np.ndarray,
) -> None:
    start = first_word(data, start, stop, classes)
    stop = last_word_end(data, start, stop, classes)
    paragraphs = 0
    paragraph_start = position = start
    while position <= stop:
        newlines = 0
        while position + newlines < stop and data[position + newlines] == _NEWLINE:
            newlines += 1
        if newlines > 1 or position == stop:
            keys[paragraphs] = text_hash(data, paragraph_start, position)
            lengths[paragraphs] = _characters(data, paragraph_start, position)
            paragraphs += 1
            paragraph_start = position + newlines
        position += max(newlines, 1)
    _intern(keys, paragraphs, ids, counts, slot_keys, slot_ids)
    new_id = 0
    for i in range(paragraphs):
        if ids[i] == new_id:
            new_id += 1
        else:
            row[19] += 1
            row[20] += lengths[i]
    row[18] = paragraphs
