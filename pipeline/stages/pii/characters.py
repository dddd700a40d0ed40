"""Classes of bytes, and what stands before and after a position."""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte

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


@borrowing
def is_digit(c: int) -> bool:
    return byte.ZERO <= c <= byte.NINE


@borrowing
def is_upper(c: int) -> bool:
    return byte.UPPER_A <= c <= byte.UPPER_Z


@borrowing
def is_lower(c: int) -> bool:
    return byte.A <= c <= byte.Z


@borrowing
def is_alnum(c: int) -> bool:
    return FLAGS[c] & (DIGIT | LETTER) != 0


@borrowing
def is_word(c: int) -> bool:
    return FLAGS[c] & (DIGIT | LETTER) != 0 or c == byte.UNDERSCORE


@borrowing
def digit_before(data: np.ndarray, i: int) -> bool:
    return i > 0 and is_digit(data[i - 1])


@borrowing
def digit_at(data: np.ndarray, i: int, hi: int) -> bool:
    return i < hi and is_digit(data[i])


@borrowing
def after_value(data: np.ndarray, i: int) -> bool:
    """Whether one byte stands between `i` and a bracket, which is how a replaced value ends."""
    return i - 2 >= 0 and data[i - 2] == byte.CLOSING_SQUARE


@borrowing
def starts_with_escape(data: np.ndarray, i: int) -> bool:
    r"""Whether the byte at `i` belongs to a written `\n`, `\r` or `\t`, as in a log in JSON."""
    c = data[i]
    return i > 0 and data[i - 1] == byte.BACKSLASH and (c == byte.N or c == byte.R or c == byte.T)


@borrowing
def escape_end(data: np.ndarray, i: int, hi: int) -> int:
    r"""Where the written `\u00e9` whose last five bytes `i` is one of ends, or 0."""
    for start in range(max(1, i - 4), i + 1):
        if data[start] == byte.U and data[start - 1] == byte.BACKSLASH and start + 5 <= hi:
            for j in range(start + 1, start + 5):
                if not FLAGS[data[j]] & HEX:
                    return 0
            return start + 5
    return 0


@borrowing
def word_before(data: np.ndarray, i: int) -> bool:
    """Whether the byte before `i` belongs to a word: not if it ends an escape, or is a "_" after a value."""
    if i == 0 or not is_word(data[i - 1]):
        return False
    if data[i - 1] == byte.UNDERSCORE:
        return not after_value(data, i)
    return not starts_with_escape(data, i - 1) and escape_end(data, i - 1, i) != i


@borrowing
def word_at(data: np.ndarray, i: int, hi: int) -> bool:
    return i < hi and is_word(data[i])


@borrowing
def digit_run(data: np.ndarray, i: int, hi: int) -> int:
    """How many digits start at `i`, at most 20."""
    end = min(hi, i + 20)
    j = i
    while j < end and is_digit(data[j]):
        j += 1
    return j - i


@borrowing
def number(data: np.ndarray, start: int, end: int) -> int:
    """The value of the digits in `start:end`."""
    value = 0
    for i in range(start, end):
        value = value * 10 + (data[i] - byte.ZERO)
    return value


@borrowing
def equals(data: np.ndarray, i: int, hi: int, expected: np.ndarray) -> bool:
    """Whether the bytes at `i` are `expected`."""
    if i < 0 or i + len(expected) > hi:
        return False
    for j in range(len(expected)):  # noqa: SIM110 - any() over a generator does not compile
        if data[i + j] != expected[j]:
            return False
    return True


SPACE, DASH, DOT, SLASH = 1, 2, 4, 8


@borrowing
def separator(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(bytes, kind) of the separator at `i`, or (0, 0). No-break spaces are SPACE, hyphens DASH."""
    if i >= hi:
        return 0, 0
    c = data[i]
    if c == byte.SPACE:
        return 1, SPACE
    if c == byte.HYPHEN:
        return 1, DASH
    if c == byte.DOT:
        return 1, DOT
    if c == byte.SLASH:
        return 1, SLASH
    if c == 0xC2 and i + 1 < hi and data[i + 1] == 0xA0:  # U+00A0
        return 2, SPACE
    if c == 0xE2 and i + 2 < hi and data[i + 1] == 0x80:
        if data[i + 2] == 0xAF:  # U+202F
            return 3, SPACE
        if 0x90 <= data[i + 2] <= 0x93:  # U+2010 to U+2013
            return 3, DASH
    return 0, 0
