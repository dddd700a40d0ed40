"""One walk over a document's characters: counts, and the words and lines that the other kernels read."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.quality.octets import hash_and_characters
from pipeline.stages.quality.unicode import ALNUM, ALONE, ALPHA, BREAK, JOINED, SPACE, SYMBOL, TERMINAL
from pipeline.stages.text import decode

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


_DOT, _HASH, _NEWLINE, _RETURN, _HYPHEN, _BULLET, _ELLIPSIS = (ord(character) for character in ".#\n\r-•…")


@borrowing
def walk(data: np.ndarray, classes: np.ndarray, words: Words, counts: np.ndarray) -> tuple[int, int]:
    """Fills `words` and the row `counts` of the document `data`.

    Returns the number of words and of lines with words.
    """
    characters = word_count = word_characters = alphabetic = doc_words = doc_word_characters = special = (
        hashes
    ) = ellipses = 0
    lines = lines_with_words = bullet_lines = ellipsis_lines = newlines = text_lines = punctuated = short = 0
    length = dots = 0  # of the word so far; of the run of dots that ends here
    seen = last = 0  # flags of the word's characters together; flags of the previous character
    symbols_only = True
    code_point = 0
    word_start = 0
    line_start = text_line_start = 0  # in characters
    line_is_empty, text_line_is_empty, ends_in_ellipsis, is_bullet = True, True, False, False
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
            word_characters += length
            words.hashes[word_count] = hash_and_characters(data, word_start, position)[0]
            words.starts[word_count] = word_start
            words.stops[word_count] = position
            words.symbols_only[word_count] = symbols_only
            word_count += 1
            words.characters[word_count] = word_characters
            alphabetic += seen & ALPHA != 0
            if not symbols_only:
                doc_words += 1
                doc_word_characters += length
            ends_in_ellipsis = dots >= ELLIPSIS_DOTS or previous == _ELLIPSIS
            length = dots = 0
        if not flags & SPACE:
            if length == 0:
                seen, symbols_only, word_start = 0, True, position
                if line_is_empty:
                    is_bullet = code_point in (_HYPHEN, _BULLET)
                line_is_empty = text_line_is_empty = False
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
                lines += 1
                if not line_is_empty:
                    words.line_words[lines_with_words] = word_count
                    lines_with_words += 1
                    bullet_lines += is_bullet
                    ellipsis_lines += ends_in_ellipsis
            line_is_empty, line_start = True, characters + 1
            if code_point == _NEWLINE:
                newlines += position < stop
                if not text_line_is_empty:
                    text_lines += 1
                    punctuated += last & TERMINAL != 0
                    short += characters - text_line_start <= SHORT_LINE
                text_line_is_empty, text_line_start = True, characters + 1
        last = flags | ALONE if flags & JOINED and last & ALONE else flags
        characters += position < stop
        position += width
    counts[Count.CHARACTERS] = characters
    counts[Count.WORDS] = word_count
    counts[Count.WORD_CHARACTERS] = word_characters
    counts[Count.ALPHABETIC_WORDS] = alphabetic
    counts[Count.DOC_WORDS] = doc_words
    counts[Count.DOC_WORD_CHARACTERS] = doc_word_characters
    counts[Count.SPECIAL_CHARACTERS] = special
    counts[Count.HASHES] = hashes
    counts[Count.ELLIPSES] = ellipses
    counts[Count.LINES] = lines
    counts[Count.BULLET_LINES] = bullet_lines
    counts[Count.ELLIPSIS_LINES] = ellipsis_lines
    counts[Count.NEWLINES] = newlines
    counts[Count.TEXT_LINES] = text_lines
    counts[Count.PUNCTUATED_LINES] = punctuated
    counts[Count.SHORT_LINES] = short
    return word_count, lines_with_words
