"""One walk over a document's characters: counts, and the words and lines that the other kernels read."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.quality.octets import alphanumeric_run, hash_and_characters, octet
from pipeline.stages.quality.unicode import ALNUM, ALONE, ALPHA, BREAK, JOINED, SPACE, SYMBOL, TERMINAL
from pipeline.stages.text import character_at, equals

SHORT_LINE = 30  # characters (FineWeb)
ELLIPSIS_DOTS = 3


class Count(IntEnum):
    """Columns of the result of `walk`."""

    CHARACTERS = 0
    WORDS = 1
    WORD_CHARACTERS = 2
    ALPHABETIC_WORDS = 3  # with at least one letter
    DOC_WORDS = 4  # not made of symbols alone
    DOC_WORD_CHARACTERS = 5
    SPECIAL_CHARACTERS = 6  # neither alphanumeric, nor white space, nor on such a character
    HASHES = 7
    ELLIPSES = 8  # "..." and "…"
    LINES = 9  # of str.splitlines()
    BULLET_LINES = 10
    ELLIPSIS_LINES = 11
    NEWLINES = 12
    TEXT_LINES = 13  # of str.split("\n"), with more than white space
    PUNCTUATED_LINES = 14
    SHORT_LINES = 15
    UNSPACED_WORDS = 16  # a character of a script without spaces


class Words(NamedTuple):
    """The words of str.split(), where each character of a script without spaces is a word, and the lines of
    str.splitlines() that hold words.
    """

    hashes: np.ndarray  # uint64; a million distinct words collide with probability 3e-8
    starts: np.ndarray  # int32, positions in the document
    stops: np.ndarray
    characters: np.ndarray  # int32, in all words before this one; one more than words
    symbols_only: np.ndarray  # bool
    line_words: np.ndarray  # int32, words up to the end of each line

    @classmethod
    def empty(cls, size: int) -> "Words":
        """Room for `size` words."""
        return cls(
            hashes=np.empty(size, np.uint64),
            starts=np.empty(size, np.int32),
            stops=np.empty(size, np.int32),
            characters=np.empty(size + 1, np.int32),
            symbols_only=np.empty(size, np.bool_),
            line_words=np.empty(size, np.int32),
        )


_DOT, _HASH, _NEWLINE, _RETURN, _HYPHEN, _ELLIPSIS = (ord(character) for character in ".#\n\r-…")
_CASE, _LOWER_A, _LOWER_Z, _DIGIT_0, _DIGIT_9 = (np.uint8(number) for number in b" az09")
_1, _8 = np.uint64(1), np.uint64(8)
_BULLET = np.frombuffer("•".encode(), np.uint8)
_ELLIPSIS_ENDS = (np.frombuffer(b"...", np.uint8), np.frombuffer("…".encode(), np.uint8))


@borrowing
def walk(data: np.ndarray, classes: np.ndarray, words: Words, counts: np.ndarray) -> tuple[int, int]:
    """Fills `words` and the row `counts`, which is 0, of the document `data`.

    Returns the number of words and of lines with words.
    """
    characters = specials = hashes = ellipses = lines = word_count = unspaced = 0
    # Of the word that is not closed yet: its characters, the flags of all together, whether all are symbols.
    word_length, word_flags, symbols_only = 0, 0, True
    dots = 0  # in a row, up to here
    code_point, last_flags = 0, 0  # of the previous character
    line_start = text_line_start = 0  # in characters
    text_line_words = 0  # words before the line
    words.characters[0] = 0
    position, stop = 0, data.size
    while position <= stop:
        # Most text is letters and digits of ASCII. A character that is a word of its own is closed below.
        end, letters = position, False
        if word_length == 0 or not last_flags & ALONE:
            end, letters = _word_end(data, position, stop)
        if end > position:
            if word_length == 0:
                words.starts[word_count] = position
                word_flags = 0
            word_flags |= ALPHA * letters
            symbols_only, dots = False, 0
            word_length += end - position
            characters += end - position
            code_point = int(data[end - 1])
            last_flags = classes[code_point]
            position = end
        previous = code_point
        code_point, width, flags = _character(data, position, stop, classes)
        # A character of a script without spaces is a word of its own, with what belongs to it.
        joined = flags & JOINED != 0 and last_flags & ALONE != 0
        if word_length and (flags & (SPACE | ALONE) or (last_flags & ALONE and not joined)):
            _close_word(data, words, word_count, position, word_length, symbols_only)
            counts[Count.ALPHABETIC_WORDS] += word_flags & ALPHA != 0
            unspaced += last_flags & ALONE != 0
            word_count += 1
            word_length = dots = 0
        if not flags & SPACE:
            if word_length == 0:
                words.starts[word_count] = position
                word_flags, symbols_only = 0, True
            word_length += 1
            word_flags |= flags
            symbols_only = symbols_only and flags & SYMBOL != 0
            specials += flags & ALNUM == 0 and not joined
            hashes += code_point == _HASH
            dots = dots + 1 if code_point == _DOT else 0
            ellipses += (dots > 0 and dots % ELLIPSIS_DOTS == 0) or code_point == _ELLIPSIS
        elif flags & BREAK:
            of_return = code_point == _NEWLINE and previous == _RETURN and position < stop
            if (not of_return) and (position < stop or characters > line_start):
                lines = _close_line(data, words, counts, lines, word_count)
            line_start = characters + 1
            if code_point == _NEWLINE:
                counts[Count.NEWLINES] += position < stop
                if word_count > text_line_words:
                    counts[Count.TEXT_LINES] += 1
                    counts[Count.PUNCTUATED_LINES] += last_flags & TERMINAL != 0
                    counts[Count.SHORT_LINES] += characters - text_line_start <= SHORT_LINE
                text_line_words, text_line_start = word_count, characters + 1
        last_flags = flags | ALONE if joined else flags
        characters += position < stop
        position += width
    counts[Count.CHARACTERS] = characters
    counts[Count.SPECIAL_CHARACTERS] = specials
    counts[Count.HASHES] = hashes
    counts[Count.ELLIPSES] = ellipses
    counts[Count.UNSPACED_WORDS] = unspaced
    _count_words(words, counts, word_count)
    return word_count, lines


@borrowing
def _character(data: np.ndarray, position: int, stop: int, classes: np.ndarray) -> tuple[int, int, int]:
    """(code point, bytes, flags) of the character at `position`. The end of the text is a newline, which
    closes the last word and the last lines.
    """
    if position == stop:
        return _NEWLINE, 1, SPACE | BREAK
    code_point, width = character_at(data, position, stop)
    return code_point, width, classes[code_point]


@borrowing
def _word_end(data: np.ndarray, position: int, stop: int) -> tuple[np.int64, bool]:
    """Where the letters and digits of ASCII from `position` on end, and whether there are letters."""
    at, end, letters = np.uint64(position), np.uint64(stop), False
    while at + _8 <= end:
        run, some = alphanumeric_run(octet(data, at))
        letters |= some
        at += run
        if run < _8:
            return np.int64(at), letters
    while at < end:
        lower = data[at] | _CASE
        letter = lower >= _LOWER_A and lower <= _LOWER_Z
        if not letter and (data[at] < _DIGIT_0 or data[at] > _DIGIT_9):
            break
        letters |= letter
        at += _1
    return np.int64(at), letters


@borrowing
def _close_word(
    data: np.ndarray, words: Words, word: int, stop: int, length: int, symbols_only: bool
) -> None:
    """Enters the word that ends at `stop` as number `word`; `words` has its start."""
    words.hashes[word] = hash_and_characters(data, np.int64(words.starts[word]), stop)[0]
    words.stops[word] = stop
    words.symbols_only[word] = symbols_only
    words.characters[word + 1] = words.characters[word] + length


@borrowing
def _count_words(words: Words, counts: np.ndarray, count: int) -> None:
    """Fills the columns of words, but for those with letters."""
    counts[Count.WORDS] = count
    counts[Count.WORD_CHARACTERS] = words.characters[count]
    doc_words = doc_word_characters = 0
    for word in range(count):
        counted = not words.symbols_only[word]
        doc_words += counted
        doc_word_characters += counted * (words.characters[word + 1] - words.characters[word])
    counts[Count.DOC_WORDS] = doc_words
    counts[Count.DOC_WORD_CHARACTERS] = doc_word_characters


@borrowing
def _close_line(data: np.ndarray, words: Words, counts: np.ndarray, lines: int, count: int) -> int:
    """Enters a line of str.splitlines() after `lines` others with words, and after `count` words. Returns how
    many have words now.
    """
    counts[Count.LINES] += 1
    first, end = words.line_words[lines - 1] if lines else 0, count
    if first == end:
        return lines
    words.line_words[lines] = end
    start, stop = np.int64(words.starts[first]), np.int64(words.stops[end - 1])
    counts[Count.BULLET_LINES] += data[start] == _HYPHEN or equals(data, start, stop, _BULLET)
    for ending in _ELLIPSIS_ENDS:
        counts[Count.ELLIPSIS_LINES] += equals(data, stop - ending.size, stop, ending)
    return lines + 1
