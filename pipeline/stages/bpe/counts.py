"""Cuts text into words as a pre-tokenizer does, and counts the distinct ones."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Regex, pre_tokenizers

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.text import CODE_POINTS, character_at, equals, utf8_arrays

LLAMA3, GPT2 = range(2)

# The classes of characters in pre-tokenization patterns, asked of the library that encodes.
LETTER, NUMBER, WHITE, BREAK, OTHER = 1, 2, 4, 8, 16
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

# Columns of `Known.rows`. A row without a count is free.
HASH, COUNT, WORD = range(3)
FIRST_ROWS = 1 << 16


class Cutting(NamedTuple):
    """How text is cut into words."""

    of: np.ndarray  # the class of every code point
    pattern: int
    most_digits: int  # of a word


class Known(NamedTuple):
    """The distinct words so far: word i has the bytes `words[starts[i]:starts[i + 1]]`."""

    rows: np.ndarray  # a hash table, at most half full
    words: np.ndarray
    starts: np.ndarray


class CountedWords(NamedTuple):
    """Distinct words: word i has the bytes `data[starts[i]:starts[i + 1]]` and occurs `counts[i]` times."""

    data: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    def batch(self) -> pa.RecordBatch:
        """The counts as a batch with the columns `word` and `count`. Nothing is copied."""
        buffers = [None, pa.py_buffer(self.starts), pa.py_buffer(self.data)]
        words = pa.Array.from_buffers(pa.large_string(), len(self.counts), buffers)
        return pa.record_batch({"word": words, "count": pa.array(self.counts)})

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch) -> "CountedWords":
        """The counts in a batch that `batch` made."""
        data, starts = utf8_arrays(batch.column("word"))
        return cls(data[: starts[-1]], starts, batch.column("count").to_numpy())


@cache
def classes() -> np.ndarray:
    """The class of every code point, uint8[0x110000]."""
    found = np.full(CODE_POINTS, OTHER, np.uint8)
    for pattern, flag in CLASSES.items():
        members = pre_tokenizers.Split(Regex(f"{pattern}+"), behavior="removed", invert=True)
        for block, characters in _blocks():
            for _, (start, stop) in members.pre_tokenize_str(characters):
                found[block + start : block + stop] = flag
    found[[ord("\r"), ord("\n")]] |= BREAK
    found.setflags(write=False)
    return found


def _blocks() -> Iterator[tuple[int, str]]:
    """The code points that may have a class, as texts, each with its first code point."""
    for first in range(0, LETTERS_END, BLOCK):
        if first not in SURROGATES:
            yield first, "".join(map(chr, range(first, first + BLOCK)))


@borrowing
def _at(data: np.ndarray, i: int, stop: int, of: np.ndarray) -> tuple[int, int]:
    """Class and bytes of the character at `i`, (0, 0) at the end."""
    if i >= stop:
        return 0, 0
    point, width = character_at(data, i, stop)
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


@borrowing
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


@borrowing
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
def _word_end(data: np.ndarray, i: int, stop: int, cutting: Cutting) -> int:
    """Where the word that starts at `i` ends: the first alternative of the pattern that fits."""
    of, pattern = cutting.of, cutting.pattern
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
        return _run_end(data, i, stop, of, NUMBER, cutting.most_digits)
    if pattern != LLAMA3 and data[i] == SPACE and following & NUMBER:
        return _run_end(data, i + width, stop, of, NUMBER, cutting.most_digits)
    if flag & OTHER or (data[i] == SPACE and following & OTHER):
        end = _run_end(data, i + width, stop, of, OTHER, stop)
        return _run_end(data, end, stop, of, BREAK, stop) if pattern == LLAMA3 else end
    return _white_end(data, i, stop, of, pattern == LLAMA3)


@borrowing
def _hash(data: np.ndarray, start: int, end: int) -> np.uint64:
    """FNV-1a, its upper half mixed into the lower."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return value ^ value >> np.uint64(32)


@kernel
def _copy(rows: np.ndarray, larger: np.ndarray) -> None:
    """Puts all rows of the hash table into a larger one, which is empty."""
    for row in range(len(rows)):
        if rows[row, COUNT]:
            slot = np.int64(rows[row, HASH] & np.uint64(len(larger) - 1))
            while larger[slot, COUNT]:
                slot = (slot + 1) & (len(larger) - 1)
            for column in range(3):
                larger[slot, column] = rows[row, column]


@borrowing
def _tally(known: Known, distinct: int, data: np.ndarray, i: int, end: int, n: int) -> int:
    """Counts the word `data[i:end]` `n` times more. A new one gets the number `distinct`. Returns the number
    of distinct words.
    """
    rows, words, starts = known
    hashed = _hash(data, i, end)
    row = np.int64(hashed & np.uint64(len(rows) - 1))
    while rows[row, COUNT]:
        if rows[row, HASH] == hashed:
            number = np.int64(rows[row, WORD])
            word = words[starts[number] : starts[number + 1]]
            if len(word) == end - i and equals(data, i, end, word):
                break
        row = (row + 1) & (len(rows) - 1)
    else:  # free
        rows[row, HASH], rows[row, WORD] = hashed, np.uint64(distinct)
        for j in range(end - i):
            words[starts[distinct] + j] = data[i + j]
        starts[distinct + 1] = starts[distinct] + end - i
        distinct += 1
    rows[row, COUNT] += np.uint64(n)
    return distinct


@kernel
def _count(
    data: np.ndarray, offsets: np.ndarray, cutting: Cutting, known: Known, distinct: int, place: np.ndarray
) -> int:
    """Counts words of a batch from `place`, a document and a position in it, until all are counted or the
    hash table is half full. There is room for the bytes of all of them. Moves `place`, and returns the number
    of distinct words, `distinct` until now.
    """
    i = place[1]
    for document in range(place[0], len(offsets) - 1):
        stop = offsets[document + 1]
        while i < stop:
            if 2 * distinct >= len(known.rows):
                place[0], place[1] = document, i
                return distinct
            end = _word_end(data, i, stop, cutting)
            distinct = _tally(known, distinct, data, i, end, 1)
            i = end
    place[0] = len(offsets) - 1
    return distinct


@kernel
def _add(counted: CountedWords, known: Known, distinct: int, place: np.ndarray) -> int:
    """As `_count`, of words that were counted. `place`: a word."""
    starts, counts = counted.starts, counted.counts
    for word in range(place[0], len(counts)):
        if 2 * distinct >= len(known.rows):
            place[0] = word
            return distinct
        distinct = _tally(known, distinct, counted.data, starts[word], starts[word + 1], counts[word])
    place[0] = len(counts)
    return distinct


class WordCounter:
    """Counts distinct words, which it keeps in the order in which they came. Memory grows with them."""

    def __init__(self) -> None:
        rows = np.zeros((FIRST_ROWS, 3), np.uint64)
        self._known = Known(rows, words=np.empty(0, np.uint8), starts=np.zeros(1, np.int64))
        self._distinct = 0

    def read(self, texts: pa.Array, pattern: str, single_digits: bool) -> None:
        """Cuts a string column into words and counts them, about 70 MB/s."""
        most_digits = UNLIMITED if pattern == "gpt2" else 1 if single_digits else 3
        cutting = Cutting(classes(), LLAMA3 if pattern == "llama3" else GPT2, most_digits)
        data, offsets = utf8_arrays(texts)
        most = int(offsets[-1] - offsets[0])
        self._make_room(most, most)
        place = np.array([0, offsets[0]])
        while place[0] < len(texts):
            self._distinct = _count(data, offsets, cutting, self._with_free_rows(), self._distinct, place)

    def add(self, counted: CountedWords) -> None:
        """Adds words that were counted elsewhere."""
        self._make_room(len(counted.data), len(counted.counts))
        place = np.zeros(1, np.int64)
        while place[0] < len(counted.counts):
            self._distinct = _add(counted, self._with_free_rows(), self._distinct, place)

    def counted(self) -> CountedWords:
        rows, data, starts = self._known
        counts = np.empty(self._distinct, np.int64)
        filled = rows[rows[:, COUNT] > 0]
        counts[filled[:, WORD].astype(np.int64)] = filled[:, COUNT]
        starts = starts[: self._distinct + 1]
        words = CountedWords(data[: starts[-1]], starts, counts)
        for array in words:  # read-only, as in a file: numba would compile `_add` for each
            array.flags.writeable = False
        return words

    def _make_room(self, more_bytes: int, more_words: int) -> None:
        rows, data, starts = self._known
        data = _with_room(data, int(starts[self._distinct]), more_bytes)
        self._known = Known(rows, data, _with_room(starts, self._distinct + 1, more_words))

    def _with_free_rows(self) -> Known:
        rows = self._known.rows
        if 2 * self._distinct >= len(rows):
            larger = np.zeros((2 * len(rows), 3), np.uint64)
            _copy(rows, larger)
            self._known = self._known._replace(rows=larger)
        return self._known


def count_words(texts: Iterable[pa.Array], pattern: str, single_digits: bool) -> CountedWords:
    """The distinct words of all texts, in the order in which they first occur."""
    counter = WordCounter()
    for column in texts:
        counter.read(column, pattern, single_digits)
    return counter.counted()


def added(counted: Iterable[CountedWords]) -> CountedWords:
    """The words that `count_words` returns for all texts together, in order. About 6 million words/s."""
    counter = WordCounter()
    for words in counted:
        counter.add(words)
    return counter.counted()


def _with_room(array: np.ndarray, used: int, more: int) -> np.ndarray:
    """The first `used` entries, with room for `more`. Memory that is not used costs nothing."""
    if len(array) >= used + more:
        return array
    larger = np.empty(max(used + more, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger
