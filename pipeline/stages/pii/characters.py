"""Classes of bytes, and what stands before and after a match."""

import numpy as np

from pipeline.stages.compiled import inner_uncached
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


@inner_uncached
def is_digit(c: int) -> bool:
    return byte.ZERO <= c <= byte.NINE


@inner_uncached
def is_upper(c: int) -> bool:
    return byte.UPPER_A <= c <= byte.UPPER_Z


@inner_uncached
def is_lower(c: int) -> bool:
    return byte.A <= c <= byte.Z


@inner_uncached
def is_alnum(c: int) -> bool:
    return FLAGS[c] & (DIGIT | LETTER) != 0


@inner_uncached
def is_word(c: int) -> bool:
    return FLAGS[c] & (DIGIT | LETTER) != 0 or c == byte.UNDERSCORE


@inner_uncached
def digit_before(data: np.ndarray, i: int, lo: int) -> bool:
    return i > lo and is_digit(data[i - 1])


@inner_uncached
def digit_at(data: np.ndarray, i: int, hi: int) -> bool:
    return i < hi and is_digit(data[i])


@inner_uncached
def word_before(data: np.ndarray, i: int, lo: int) -> bool:
    return i > lo and is_word(data[i - 1])


@inner_uncached
def word_at(data: np.ndarray, i: int, hi: int) -> bool:
    return i < hi and is_word(data[i])


@inner_uncached
def digit_run(data: np.ndarray, i: int, hi: int) -> int:
    """How many digits start at `i`, at most 20."""
    end = min(hi, i + 20)
    j = i
    while j < end and is_digit(data[j]):
        j += 1
    return j - i


@inner_uncached
def equals(data: np.ndarray, i: int, hi: int, expected: np.ndarray) -> bool:
    """Whether the bytes at `i` are `expected`."""
    if i < 0 or i + len(expected) > hi:
        return False
    for j in range(len(expected)):  # noqa: SIM110 - any() over a generator does not compile
        if data[i + j] != expected[j]:
            return False
    return True


SPACE, DASH, DOT, SLASH = 1, 2, 4, 8


@inner_uncached
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


_PART_OF_NUMBER = byte.byte_set(b"+,-./")  # after a digit


@inner_uncached
def stands_alone(data: np.ndarray, p: int, end: int, lo: int, hi: int) -> bool:
    """Whether `p:end` touches no letter, no digit, and no separator that joins it to another digit."""
    if word_before(data, p, lo) or word_at(data, end, hi) or (end < hi and data[end] == byte.AT):
        return False
    if p > lo and _PART_OF_NUMBER[data[p - 1]] and digit_before(data, p - 1, lo):
        return False
    width, kind = separator(data, end, hi)
    return not (width > 0 and kind != SPACE and digit_at(data, end + width, hi))
