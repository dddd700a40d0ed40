"""Cuts text into words as a pre-tokenizer does, and counts the distinct ones."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Regex, pre_tokenizers

from pipeline.stages.compiled import borrowing, inlined, inner, kernel
from pipeline.stages.quality.unicode import CODE_POINTS, decode
from pipeline.stages.text import utf8_arrays

LETTER, NUMBER, WHITE, BREAK, OTHER, NOT_A_DIGIT = 1, 2, 4, 8, 16, 32
LLAMA3, GPT2, GPT2_SINGLE_DIGITS = range(3)
CLASSES = {r"\p{L}": LETTER, r"\p{N}": NUMBER, r"\s": WHITE}
SURROGATES = range(0xD800, 0xE000)
LETTERS_END = 0x40000  # the planes after it have no letters, numbers or spaces
BLOCK = 0x800  # code points; the library takes time quadratic in the length of a text

UNLIMITED = 1 << 62

APOSTROPHE, SPACE = ord("'"), ord(" ")
LONG_S = b"\xc5\xbf"  # the only other character that is an s or a t when case is ignored
FOLD = ord("a") - ord("A")
E, L, R, V = (ord(letter) for letter in "elrv")
ALONE = np.isin(np.arange(256), list(b"stmd"))  # follow an apostrophe by themselves


class Words(NamedTuple):
    """Distinct words: word i has the bytes `data[starts[i]:starts[i + 1]]` and occurs `counts[i]` times."""

    data: np.ndarray
    starts: np.ndarray
    counts: np.ndarray


@cache
def classes() -> np.ndarray:
    """The class of every code point, uint8[0x110000], for the Unicode of the library that encodes."""
    found = np.full(CODE_POINTS, OTHER, np.uint8)
    others = {pattern: pre_tokenizers.Split(Regex(f"{pattern}+"), behavior="removed") for pattern in CLASSES}
    for first in range(0, LETTERS_END, BLOCK):
        if first not in SURROGATES:
            characters = "".join(map(chr, range(first, first + BLOCK)))
            for pattern, flag in CLASSES.items():
                end = 0
                for _, (start, stop) in [*others[pattern].pre_tokenize_str(characters), ("", (BLOCK, BLOCK))]:
                    found[first + end : first + start] = flag
                    end = stop
    found[_none_are_digits()] |= NOT_A_DIGIT
    found[[ord("\r"), ord("\n")]] |= BREAK
    found.setflags(write=False)
    return found


def _none_are_digits() -> np.ndarray:
    """Which code points `Digits`, the library's pre-tokenizer, leaves together with their neighbours."""
    together = np.ones(CODE_POINTS, np.bool_)
    split = pre_tokenizers.Digits(individual_digits=True)
    for first in range(0, LETTERS_END, BLOCK):
        if first not in SURROGATES:
            for text, (start, _) in split.pre_tokenize_str(
                "".join(f"{chr(point)}a" for point in range(first, first + BLOCK))
            ):
                together[first + start // 2] &= len(text) > 1
    return together


@borrowing
def _at(data: np.ndarray, i: int, stop: int, of: np.ndarray) -> tuple[int, int]:
    """Class and bytes of the character at `i`, (0, 0) at the end."""
    if i >= stop:
        return 0, 0
    if data[i] < 0x80:
        return of[data[i]], 1
    point, width = decode(data, i, stop)
    return of[point], width


@borrowing
def _run_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, members: int, most: int) -> int:
    """Where the run of at most `most` characters of the classes `members` that starts at `i` ends."""
    for _ in range(most):
        flag, width = _at(data, i, stop, of)
        if not flag & members:
            break
        i += width
    return i


@inlined
def _contraction_end(data: np.ndarray, i: int, stop: int, ignore_case: bool) -> int:
    """Where one of 's 't 're 've 'm 'll 'd, with the apostrophe at `i`, ends; `i` if there is none."""
    if i + 1 >= stop:
        return i
    fold = FOLD if ignore_case else 0
    first = data[i + 1] | fold
    if ALONE[first]:
        return i + 2
    if i + 2 >= stop:
        return i
    second = data[i + 2] | fold
    if first == L and second == L:
        return i + 3
    if second == E and (first == R or first == V):  # noqa: SIM109 - a tuple compiles slower
        return i + 3
    if ignore_case and data[i + 1] == LONG_S[0] and data[i + 2] == LONG_S[1]:
        return i + 3
    return i


@inlined
def _white_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, breaks_end_words: bool) -> int:
    r"""Where `\s*[\r\n]+` (if breaks do), `\s+(?!\S)` or `\s+` ends for the white space at `i`."""
    last = after_break = end = i
    while True:
        flag, width = _at(data, end, stop, of)
        if not flag & WHITE:
            break
        last = end
        end += width
        if flag & BREAK:
            after_break = end
    if breaks_end_words and after_break > i:
        return after_break
    return end if end == stop or last == i else last


@borrowing
def word_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, pattern: int, most_digits: int) -> int:
    """Where the word that starts at `i` ends: the first alternative of the pattern that fits."""
    flag, width = _at(data, i, stop, of)
    if data[i] == APOSTROPHE:
        end = _contraction_end(data, i, stop, pattern == LLAMA3)
        if end > i:
            return end
    following = _at(data, i + width, stop, of)[0]
    led = data[i] == SPACE or (pattern == LLAMA3 and flag & (WHITE | OTHER) and not flag & BREAK)
    if flag & LETTER or (led and following & LETTER):
        return _run_end(data, i + width, stop, of, LETTER, stop)
    if flag & NUMBER:
        return _run_end(data, i, stop, of, NUMBER, most_digits)
    if pattern != LLAMA3 and data[i] == SPACE and following & NUMBER:
        return _run_end(data, i + width, stop, of, NUMBER, most_digits)
    if flag & OTHER or (data[i] == SPACE and following & OTHER):
        end = _run_end(data, i + width, stop, of, OTHER, stop)
        return _run_end(data, end, stop, of, BREAK, stop) if pattern == LLAMA3 else end
    return _white_end(data, i, stop, of, pattern == LLAMA3)


@inlined
def _piece_end(data: np.ndarray, i: int, stop: int, of: np.ndarray, pattern: int) -> int:
    """Where the text that is cut into words by itself ends: each digit is, and what stands between digits."""
    if pattern != GPT2_SINGLE_DIGITS:
        return stop
    end = _run_end(data, i, stop, of, NOT_A_DIGIT, stop)
    return end if end > i else i + _at(data, i, stop, of)[1]


@borrowing
def _hash(data: np.ndarray, start: int, end: int) -> np.uint64:
    """FNV-1a, with its bits mixed once more."""
    h = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return h ^ (h >> np.uint64(29))


@borrowing
def _slot(
    slots: np.ndarray, words: np.ndarray, starts: np.ndarray, data: np.ndarray, start: int, end: int
) -> np.int64:
    """Where in the hash table the word `data[start:end]` is, or where it belongs."""
    slot = np.int64(_hash(data, start, end) & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        known = slots[slot]
        first = starts[known]
        if starts[known + 1] - first == end - start:
            i = 0
            while i < end - start and words[first + i] == data[start + i]:
                i += 1
            if i == end - start:
                break
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@inner
def _twice(slots: np.ndarray, words: np.ndarray, starts: np.ndarray, known: int) -> np.ndarray:
    """The hash table of the first `known` words with twice the room."""
    larger = np.full(2 * len(slots), -1, np.int64)
    for word in range(known):
        larger[_slot(larger, words, starts, words, starts[word], starts[word + 1])] = word
    return larger


@kernel
def _count(
    data: np.ndarray,
    offsets: np.ndarray,
    of: np.ndarray,
    pattern: int,
    most_digits: int,
    slots: np.ndarray,
    words: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    known: int,
) -> tuple[np.ndarray, int]:
    """Counts the words of a batch. `words`, `starts` and `counts` have room for all of them. Returns the hash
    table and the number of distinct words.
    """
    for document in range(len(offsets) - 1):
        i = stop = offsets[document]
        while i < offsets[document + 1]:
            if i == stop:
                stop = _piece_end(data, i, offsets[document + 1], of, pattern)
            end = word_end(data, i, stop, of, pattern, most_digits)
            slot = _slot(slots, words, starts, data, i, end)
            if slots[slot] < 0:
                slots[slot] = known
                first = starts[known]
                for j in range(end - i):
                    words[first + j] = data[i + j]
                known += 1
                starts[known] = first + end - i
                if 2 * known > len(slots):
                    slots = _twice(slots, words, starts, known)
                    slot = _slot(slots, words, starts, data, i, end)
            counts[slots[slot]] += 1
            i = end
    return slots, known


def count_words(texts: Iterable[pa.Array], pattern: str, single_digits: bool) -> Words:
    """The distinct words of all texts, about 100 MB/s on one core. Memory grows with the distinct words."""
    slots = np.full(1 << 16, -1, np.int64)
    words, starts, counts = np.empty(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.int64)
    known = 0
    kind = LLAMA3 if pattern == "llama3" else GPT2_SINGLE_DIGITS if single_digits else GPT2
    most_digits = UNLIMITED if pattern == "gpt2" else 1 if single_digits else 3
    for column in texts:
        data, offsets = utf8_arrays(column)
        room = int(offsets[-1] - offsets[0])
        words = _with_room(words, int(starts[known]) + room)
        starts, counts = _with_room(starts, known + room + 1), _with_room(counts, known + room)
        slots, known = _count(
            data, offsets, classes(), kind, most_digits, slots, words, starts, counts, known
        )
    return Words(words[: starts[known]], starts[: known + 1], counts[:known])


def _with_room(array: np.ndarray, length: int) -> np.ndarray:
    """The array, with zeros behind it if it is shorter than `length`."""
    if len(array) >= length:
        return array
    larger = np.zeros(max(length, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
