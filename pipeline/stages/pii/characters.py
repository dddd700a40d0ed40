"""Classes of bytes, and what may stand beside a match.

A replacement written by an earlier pass counts as a digit and as a letter wherever a matcher asks for its neighbours. So a candidate that was
refused because of the value beside it is still refused once that value is gone, and scrubbing twice equals scrubbing once.
"""

import numpy as np
from numba import njit

from pipeline.stages.pii.kinds import EXAMPLES, PLACEHOLDERS

DIGIT, LETTER, HEX, LOCAL, LABEL, TOKEN, USERINFO, BASE64 = 1, 2, 4, 8, 16, 32, 64, 128


def _flags() -> np.ndarray:
    flags = np.zeros(256, np.uint8)
    digits, lower, upper = b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    letters = lower + upper
    members = {
        DIGIT: digits,
        LETTER: letters,
        HEX: digits + b"abcdefABCDEF",
        LOCAL: digits + letters + b"._-+'",
        LABEL: digits + letters + b"-",
        TOKEN: digits + letters + b"_-",
        USERINFO: digits + letters + b"-._~!$&'()*+,;=:%@^|",
        BASE64: digits + letters + b"+/=",
    }
    for flag, characters in members.items():
        flags[list(characters)] |= flag
    return flags


FLAGS = _flags()

_MARKS = PLACEHOLDERS[:7] + EXAMPLES
MARK_BYTES = np.frombuffer(b"".join(_MARKS), dtype=np.uint8).copy()
MARK_STARTS = np.cumsum([0] + [len(mark) for mark in _MARKS]).astype(np.int64)
_MARK_FIRST = np.isin(np.arange(256), [mark[0] for mark in _MARKS])
_MARK_LAST = np.isin(np.arange(256), [mark[-1] for mark in _MARKS])


@njit
def is_digit(c: int) -> bool:
    return 48 <= c <= 57


@njit
def is_alnum(c: int) -> bool:
    return FLAGS[c] & (DIGIT | LETTER) != 0


@njit
def is_word(c: int) -> bool:
    return FLAGS[c] & (DIGIT | LETTER) != 0 or c == 95


@njit
def mark_length(data: np.ndarray, i: int, hi: int) -> int:
    """The bytes of the replacement that starts at `i`, or 0."""
    if i < hi and _MARK_FIRST[data[i]]:
        for mark in range(len(MARK_STARTS) - 1):
            start, length = MARK_STARTS[mark], MARK_STARTS[mark + 1] - MARK_STARTS[mark]
            same = 0
            while same < length and i + same < hi and data[i + same] == MARK_BYTES[start + same]:
                same += 1
            if same == length:
                return length
    return 0


@njit
def mark_ends(data: np.ndarray, i: int, lo: int) -> bool:
    """Whether a replacement ends just before `i`."""
    if i > lo and _MARK_LAST[data[i - 1]]:
        for mark in range(len(MARK_STARTS) - 1):
            last, length = MARK_STARTS[mark + 1] - 1, MARK_STARTS[mark + 1] - MARK_STARTS[mark]
            same = 0
            while same < length and i - 1 - same >= lo and data[i - 1 - same] == MARK_BYTES[last - same]:
                same += 1
            if same == length:
                return True
    return False


@njit
def number_before(data: np.ndarray, i: int, lo: int) -> bool:
    return i > lo and (is_digit(data[i - 1]) or mark_ends(data, i, lo))


@njit
def number_at(data: np.ndarray, i: int, hi: int) -> bool:
    return i < hi and (is_digit(data[i]) or mark_length(data, i, hi) > 0)


@njit
def word_before(data: np.ndarray, i: int, lo: int) -> bool:
    return i > lo and (is_word(data[i - 1]) or mark_ends(data, i, lo))


@njit
def word_at(data: np.ndarray, i: int, hi: int) -> bool:
    return i < hi and (is_word(data[i]) or mark_length(data, i, hi) > 0)


@njit
def digit_run(data: np.ndarray, i: int, hi: int) -> int:
    """How many digits stand at `i`, counted to 20."""
    end = min(hi, i + 20)
    j = i
    while j < end and is_digit(data[j]):
        j += 1
    return j - i


SPACE, DASH, DOT, SLASH = 1, 2, 4, 8


@njit
def separator(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(bytes, kind) of the one separator at `i`: space or no-break space, hyphen or dash, full stop, slash; (0, 0) if there is none."""
    if i >= hi:
        return 0, 0
    c = data[i]
    if c == 32:
        return 1, SPACE
    if c == 45:
        return 1, DASH
    if c == 46:
        return 1, DOT
    if c == 47:
        return 1, SLASH
    if c == 0xC2 and i + 1 < hi and data[i + 1] == 0xA0:
        return 2, SPACE
    if c == 0xE2 and i + 2 < hi and data[i + 1] == 0x80:
        if data[i + 2] == 0xAF:
            return 3, SPACE
        if 0x90 <= data[i + 2] <= 0x93:
            return 3, DASH
    return 0, 0


@njit
def stands_alone(data: np.ndarray, p: int, end: int, lo: int, hi: int) -> bool:
    """Whether neither a letter, nor a digit, nor a separator and a digit is beside `p:end`."""
    if word_before(data, p, lo) or word_at(data, end, hi) or (end < hi and data[end] == 64):
        return False
    if p > lo and 43 <= data[p - 1] <= 47 and number_before(data, p - 1, lo):
        return False
    width, kind = separator(data, end, hi)
    return not (width > 0 and kind != SPACE and number_at(data, end + width, hi))
