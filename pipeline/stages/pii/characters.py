"""Classes of bytes, what stands before and after a position, and what continues a number or separates it from
another.
"""

from string import ascii_letters, digits, hexdigits

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte

DIGIT, LETTER, HEX, LOCAL, LABEL, TOKEN, USERINFO, BASE64 = 1, 2, 4, 8, 16, 32, 64, 128


_DIGITS, _LETTERS = digits.encode(), ascii_letters.encode()
_MEMBERS = {
    DIGIT: _DIGITS,
    LETTER: _LETTERS,
    HEX: hexdigits.encode(),
    LOCAL: _DIGITS + _LETTERS + b"._-+'",
    LABEL: _DIGITS + _LETTERS + b"-",
    TOKEN: _DIGITS + _LETTERS + b"_-",
    USERINFO: _DIGITS + _LETTERS + b"-._~!$&'()*+,;=:%@^|",
    BASE64: _DIGITS + _LETTERS + b"+/=",
}
FLAGS: np.ndarray = np.stack([flag * byte.byte_set(members) for flag, members in _MEMBERS.items()]).sum(
    axis=0, dtype=np.uint8
)


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
