"""What stands directly beside a number: what continues it, and what only separates it from another."""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte
from pipeline.stages.pii.characters import (
    DASH,
    DOT,
    SLASH,
    digit_at,
    digit_before,
    is_alnum,
    is_digit,
    separator,
    word_at,
    word_before,
)

_FEWEST = 7  # digits of the shortest value that follows a slash or a long dash
_AHEAD = 24  # bytes


@borrowing
def repeats(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether the layout of `p:end`, digit for digit, stands again after one separator: they are a list."""
    if end >= hi or is_alnum(data[end]):
        return False
    width, _ = separator(data, end, hi)
    shift = end + max(width, 1) - p
    if end + shift > hi or digit_at(data, end + shift, hi):
        return False
    for i in range(p, end):
        if data[i] != data[i + shift] and not (is_digit(data[i]) and is_digit(data[i + shift])):
            return False
    return True


@borrowing
def digits_ahead(data: np.ndarray, q: int, hi: int) -> int:
    """How many digits, in groups with separators between them, start at `q`; at most _AHEAD bytes count."""
    count, i, stop = 0, q, min(hi, q + _AHEAD)
    while i < stop:
        width, _ = separator(data, i, hi)
        if is_digit(data[i]):
            count += 1
            width = 1
        if width == 0:
            break
        i += width
    return count


@borrowing
def is_continued(data: np.ndarray, p: int, end: int, hi: int, kinds: int) -> bool:
    """Whether a letter, "@", or one of the separators `kinds` with a digit after it continues `p:end`.

    It does not if what follows is another value: one of the same layout, or, after a slash or a dash other
    than "-", at least 7 digits.
    """
    if end >= hi:
        return False
    width, kind = separator(data, end, hi)
    joins = kind & kinds != 0 and digit_at(data, end + width, hi)
    if not (joins or word_at(data, end, hi) or data[end] == byte.AT):
        return False
    parts = joins and (kind == SLASH or (kind == DASH and data[end] != byte.HYPHEN))
    if parts and digits_ahead(data, end + width, hi) >= _FEWEST:
        return False
    return not repeats(data, p, end, hi)


@borrowing
def stands_alone(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether `p:end` touches no letter, no digit, and no hyphen or dot that joins it to another digit."""
    if word_before(data, p):
        return False
    if p > 0 and (data[p - 1] == byte.HYPHEN or data[p - 1] == byte.DOT) and digit_before(data, p - 1):
        return False
    return not is_continued(data, p, end, hi, DASH | DOT)
