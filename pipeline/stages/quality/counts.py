"""What one walk over a document's characters can count: words, symbols, and lines by how they begin and end."""

from enum import IntEnum

import numpy as np

from pipeline.stages.quality.compiled import kernel, part
from pipeline.stages.quality.unicode import ALNUM, ALPHA, BREAK, SPACE, SYMBOL, TERMINAL, decode

SHORT_LINE = 30  # characters (FineWeb)


class Count(IntEnum):
    """Columns of the result of `count`."""

    CHARACTERS = 0
    WORDS = 1
    WORD_CHARACTERS = 2
    ALPHABETIC_WORDS = 3  # with at least one letter
    COUNTED_WORDS = 4  # not made of symbols alone
    COUNTED_WORD_CHARACTERS = 5
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


_DOT, _HASH, _NEWLINE, _RETURN, _HYPHEN, _BULLET, _ELLIPSIS = 0x2E, 0x23, 0x0A, 0x0D, 0x2D, 0x2022, 0x2026
_COLUMNS = len(Count)


@kernel
def count(data: np.ndarray, offsets: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """int64[documents, len(Count)]. Time is linear in the text, memory constant beside the result."""
    counts = np.zeros((offsets.size - 1, _COLUMNS), np.int64)
    for row in range(offsets.size - 1):
        _count_document(data, offsets[row], offsets[row + 1], classes, counts[row])
    return counts


@part
def _count_document(data: np.ndarray, start: int, stop: int, classes: np.ndarray, counts: np.ndarray) -> None:
    characters = words = word_characters = alphabetic = counted = counted_characters = special = hashes = ellipses = 0
    lines = bullet_lines = ellipsis_lines = newlines = text_lines = punctuated = short = 0
    length = dots = 0  # of the word so far; of the run of dots that ends here
    seen = last = 0  # flags of all of the word's characters; flags of the previous character
    symbols_only = True
    code_point = 0
    line_start = text_line_start = 0  # in characters
    line_is_empty, text_line_is_empty, ends_in_ellipsis, is_bullet = True, True, False, False
    position = start
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
        if not flags & SPACE:
            if length == 0:
                seen, symbols_only = 0, True
                if line_is_empty:
                    is_bullet = code_point in (_HYPHEN, _BULLET)
                line_is_empty = text_line_is_empty = False
            length += 1
            seen |= flags
            symbols_only = symbols_only and flags & SYMBOL != 0
            special += flags & ALNUM == 0
            hashes += code_point == _HASH
            dots = dots + 1 if code_point == _DOT else 0
            ellipses += (dots > 0 and dots % 3 == 0) or code_point == _ELLIPSIS
        else:
            if length:
                words += 1
                word_characters += length
                alphabetic += seen & ALPHA != 0
                if not symbols_only:
                    counted += 1
                    counted_characters += length
                ends_in_ellipsis = dots >= 3 or previous == _ELLIPSIS
                length = dots = 0
            if flags & BREAK:
                of_return = code_point == _NEWLINE and previous == _RETURN and position < stop
                if (not of_return) and (position < stop or characters > line_start):
                    lines += 1
                    if not line_is_empty:
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
        last = flags
        characters += position < stop
        position += width
    counts[0], counts[1], counts[2], counts[3] = characters, words, word_characters, alphabetic
    counts[4], counts[5], counts[6], counts[7] = counted, counted_characters, special, hashes
    counts[8], counts[9], counts[10], counts[11] = ellipses, lines, bullet_lines, ellipsis_lines
    counts[12], counts[13], counts[14], counts[15] = newlines, text_lines, punctuated, short
