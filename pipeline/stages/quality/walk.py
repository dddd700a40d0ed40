"""One walk over a document's characters: counts, and the words and lines that the other kernels read."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.quality.octets import hash_and_characters
from pipeline.stages.quality.unicode import ALNUM, ALONE, ALPHA, BREAK, JOINED, SPACE, SYMBOL, TERMINAL
from pipeline.stages.text import decode, equals

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
    SPECIAL_CHARACTERS = 6  # neither alphanumeric nor white space
    HASHES = 7
    ELLIPSES = 8  # "..." and "…"
    LINES = 9  # of str.splitlines()
    BULLET_LINES = 10
    ELLIPSIS_LINES = 11
    NEWLINES = 12
    TEXT_LINES = 13  # of str.split("\n"), with more than white space
    PUNCTUATED_LINES = 14
    SHORT_LINES = 15


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
_BULLET = np.frombuffer("•".encode(), np.uint8)
_ELLIPSIS_ENDS = (np.frombuffer(b"...", np.uint8), np.frombuffer("…".encode(), np.uint8))


@borrowing
def walk(data: np.ndarray, classes: np.ndarray, words: Words, counts: np.ndarray) -> tuple[int, int]:
    """Fills `words` and the row `counts`, which is 0, of the document `data`.

    Returns the number of words and of lines with words.
    """
    characters = special = hashes = ellipses = lines = 0
    length = dots = 0  # of the word so far; of the run of dots that ends here
    seen = last = 0  # flags of the word's characters together; flags of the previous character
    symbols_only = True
    code_point = 0
    line_start = text_line_start = 0  # in characters
    text_line_words = 0  # words before the line
    words.characters[0] = 0
    position, stop = 0, data.size
    while position <= stop:
        previous = code_point
        if position == stop:  # the end of the text closes the last word and the last lines
            code_point, width, flags = _NEWLINE, 1, SPACE | BREAK
        elif data[position] < 0x80:
            code_point, width = int(data[position]), 1
            flags = classes[code_point]
        else:
            code_point, width = decode(data, position, stop)
            flags = classes[code_point]
        # A character of a script without spaces is a word of its own, with its marks.
        if length and (flags & (SPACE | ALONE) or (last & ALONE and not flags & JOINED)):
            _close_word(data, words, counts, position, length, seen, symbols_only)
            length = dots = 0
        if not flags & SPACE:
            if length == 0:
                words.starts[counts[Count.WORDS]] = position
                seen, symbols_only = 0, True
            length += 1
            seen |= flags
            symbols_only = symbols_only and flags & SYMBOL != 0
            special += flags & ALNUM == 0
            hashes += code_point == _HASH
            dots = dots + 1 if code_point == _DOT else 0
            ellipses += (dots > 0 and dots % ELLIPSIS_DOTS == 0) or code_point == _ELLIPSIS
        elif flags & BREAK:
            of_return = code_point == _NEWLINE and previous == _RETURN and position < stop
            if (not of_return) and (position < stop or characters > line_start):
                lines = _close_line(data, words, counts, lines)
            line_start = characters + 1
            if code_point == _NEWLINE:
                counts[Count.NEWLINES] += position < stop
                if counts[Count.WORDS] > text_line_words:
                    counts[Count.TEXT_LINES] += 1
                    counts[Count.PUNCTUATED_LINES] += last & TERMINAL != 0
                    counts[Count.SHORT_LINES] += characters - text_line_start <= SHORT_LINE
                text_line_words, text_line_start = counts[Count.WORDS], characters + 1
        last = flags | ALONE if flags & JOINED and last & ALONE else flags
        characters += position < stop
        position += width
    counts[Count.CHARACTERS] = characters
    counts[Count.SPECIAL_CHARACTERS] = special
    counts[Count.HASHES] = hashes
    counts[Count.ELLIPSES] = ellipses
    return counts[Count.WORDS], lines


@borrowing
def _close_word(
    data: np.ndarray, words: Words, counts: np.ndarray, stop: int, length: int, seen: int, symbols_only: bool
) -> None:
    """Enters the word that ends at `stop`; `words` has its start. `seen`: the flags of its characters."""
    word = counts[Count.WORDS]
    counts[Count.WORDS] += 1
    counts[Count.WORD_CHARACTERS] += length
    counts[Count.ALPHABETIC_WORDS] += seen & ALPHA != 0
    if not symbols_only:
        counts[Count.DOC_WORDS] += 1
        counts[Count.DOC_WORD_CHARACTERS] += length
    words.hashes[word] = hash_and_characters(data, np.int64(words.starts[word]), stop)[0]
    words.stops[word] = stop
    words.symbols_only[word] = symbols_only
    words.characters[word + 1] = counts[Count.WORD_CHARACTERS]


@borrowing
def _close_line(data: np.ndarray, words: Words, counts: np.ndarray, lines: int) -> int:
    """Enters a line of str.splitlines() after `lines` others with words. Returns how many have words now."""
    counts[Count.LINES] += 1
    first, end = words.line_words[lines - 1] if lines else 0, counts[Count.WORDS]
    if first == end:
        return lines
    words.line_words[lines] = end
    start, stop = np.int64(words.starts[first]), np.int64(words.stops[end - 1])
    counts[Count.BULLET_LINES] += data[start] == _HYPHEN or equals(data, start, stop, _BULLET)
    for ending in _ELLIPSIS_ENDS:
        counts[Count.ELLIPSIS_LINES] += equals(data, stop - ending.size, stop, ending)
    return lines + 1
