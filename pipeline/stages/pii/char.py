"""Sets of bytes, what stands beside a position, and what continues or separates a number."""

from string import ascii_lowercase, ascii_uppercase, digits, hexdigits

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte

DIGITS, HEX, UPPER, LOWER = (
    byte.byte_set(members.encode()) for members in (digits, hexdigits, ascii_uppercase, ascii_lowercase)
)
ASCII_LETTERS = UPPER | LOWER
ALNUM = DIGITS | ASCII_LETTERS
LETTERS = ASCII_LETTERS | byte.byte_set(bytes(range(0x80, 0x100)))  # those of other scripts too
PRINTED = byte.byte_set(bytes(range(33, 0x100)))
IN_LOCAL, IN_LABEL, IN_TOKEN, IN_USERINFO, IN_BASE64 = (
    ALNUM | byte.byte_set(signs) for signs in (b"._-+'", b"-", b"_-", b"-._~!$&'()*+,;=:%@^|", b"+/=")
)
ASSIGNS = byte.byte_set(bytes(range(33)) + b"=:\"'")  # stand between a name and its value
SPACES = byte.byte_set(b" ")


@borrowing
def run_end(data: np.ndarray, i: int, stop: int, members: np.ndarray) -> int:
    """Where the bytes from `i` on that are in the set `members` end, at the latest at `stop`."""
    while i < stop and members[data[i]]:
        i += 1
    return i


@borrowing
def run_start(data: np.ndarray, i: int, floor: int, members: np.ndarray) -> int:
    """Where the bytes before `i` that are in the set `members` begin, at the earliest at `floor`, or at 0."""
    floor = max(0, floor)
    while i > floor and members[data[i - 1]]:
        i -= 1
    return i


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
    return ALNUM[c]


@borrowing
def is_letter(c: int) -> bool:
    return LETTERS[c]


@borrowing
def hex_value(c: int) -> int:
    return c - byte.ZERO if c <= byte.NINE else (c | byte.CASE) - byte.A + 10


@borrowing
def starts_line(data: np.ndarray, i: int) -> bool:
    return i == 0 or data[i - 1] == byte.NEWLINE


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
def word_before(data: np.ndarray, i: int) -> bool:
    """Whether the byte before `i` belongs to a word. A "_" does after a digit: "1_212-555-0187"."""
    if i == 0:
        return False
    return is_alnum(data[i - 1]) or (data[i - 1] == byte.UNDERSCORE and digit_before(data, i - 1))


@borrowing
def word_at(data: np.ndarray, i: int, hi: int) -> bool:
    return i < hi and is_alnum(data[i])


@borrowing
def digit_run(data: np.ndarray, i: int, hi: int) -> int:
    """How many digits start at `i`, at most 20."""
    return run_end(data, i, min(hi, i + 20), DIGITS) - i


@borrowing
def number(data: np.ndarray, start: int, end: int) -> int:
    """The value of the digits in `start:end`."""
    value = 0
    for i in range(start, end):
        value = value * 10 + (data[i] - byte.ZERO)
    return value


@borrowing
def number_at(data: np.ndarray, i: int, hi: int, most: int, base: int) -> tuple[int, int]:
    """(value, end) of at most `most` digits of the base at `i`."""
    value, end, stop = 0, i, min(hi, i + most)
    while end < stop and HEX[data[end]] and hex_value(data[end]) < base:
        value = value * base + hex_value(data[end])
        end += 1
    return value, end


SPACE, DASH, DOT, SLASH = 1, 2, 4, 8
_SEPARATORS = np.zeros(256, np.int64)
_SEPARATORS[list(b" -./")] = SPACE, DASH, DOT, SLASH
_SEPARATORS[byte.LONG_DASH] = DASH
_SEPARATORS[byte.RAISED_DOT] = DOT
_WIDEST_GAP = 3


@borrowing
def separator(data: np.ndarray, i: int, hi: int) -> int:
    """The kind of the separator at `i`, or 0."""
    return _SEPARATORS[data[i]] if i < hi else 0


@borrowing
def gap(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(kind, bytes) of what separates two groups at `i`: a separator, one with spaces beside it, two or three
    spaces, or a hyphen or spaces at the end of a line. (0, 0) if there is none.
    """
    q, kind = i, 0
    while q < hi and q - i < _WIDEST_GAP and separator(data, q, hi):
        one = separator(data, q, hi)
        if one != SPACE:
            if kind and (kind != one or one != DASH or data[q - 1] == byte.SPACE):  # all but "--"
                return 0, 0
            kind = one
        q += 1
    if q < hi and (data[q] == byte.NEWLINE or data[q] == byte.RETURN):
        following = next_line(data, q, hi)
        return (kind if kind else SPACE, following - i) if following > 0 and kind in (0, DASH) else (0, 0)
    if q == i or (kind == DOT and q - i == 2):  # ". " ends a sentence
        return 0, 0
    return kind if kind else SPACE, q - i


@borrowing
def before_space(data: np.ndarray, p: int) -> tuple[int, bool]:
    """(digits, ends) of the number that one space parts from `p`: 0 digits where there is none. `ends`: it is
    a zip code or the last of a date or time, which no number after it continues.
    """
    if p < 2 or data[p - 1] != byte.SPACE:
        return 0, False
    i = run_start(data, p - 1, p - 8, DIGITS)
    digits = p - 1 - i
    joined = digits > 0 and i > 0 and (separator(data, i - 1, p) & ~SPACE or data[i - 1] == byte.COLON)
    dated = joined and digit_before(data, i - 1) and (digits == 2 or digits == 4)
    return digits, dated or (digits == 5 and not joined)


_BEFORE_LINE = byte.byte_set(b" \t\r")
_LINE_START = byte.byte_set(b" \t>|#*")
_MOST_INDENTED = 8


@borrowing
def next_line(data: np.ndarray, i: int, hi: int) -> int:
    """Where a number that is wrapped at `i` goes on, after indentation or a quotation mark, or 0."""
    q = run_end(data, i, min(hi, i + 3), _BEFORE_LINE)
    if q >= hi or data[q] != byte.NEWLINE:
        return 0
    q = run_end(data, q + 1, min(hi, q + 1 + _MOST_INDENTED), _LINE_START)
    return q if q < hi and is_alnum(data[q]) else 0


_FEWEST = 7  # digits of the shortest value that follows a slash or a long dash
_AHEAD = 24  # bytes


@borrowing
def repeats(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether the layout of `p:end`, digit for digit, stands again after one separator: they are a list."""
    if end >= hi or is_alnum(data[end]):
        return False
    shift = end + 1 - p
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
    while i < stop and (is_digit(data[i]) or separator(data, i, hi)):
        count += is_digit(data[i])
        i += 1
    return count


@borrowing
def is_continued(data: np.ndarray, p: int, end: int, hi: int, kinds: int) -> bool:
    """Whether a letter, "@", or one of the separators `kinds` with a digit after it continues `p:end`.

    It does not if what follows is another value: one of the same layout, or, after a slash or a dash other
    than "-", at least 7 digits.
    """
    if end >= hi:
        return False
    joins = separator(data, end, hi) & kinds != 0 and digit_at(data, end + 1, hi)
    if not (joins or word_at(data, end, hi) or data[end] == byte.AT):
        return False
    parts = joins and (data[end] == byte.SLASH or data[end] == byte.LONG_DASH)
    if parts and digits_ahead(data, end + 1, hi) >= _FEWEST:
        return False
    return not repeats(data, p, end, hi)


_ARITHMETIC = byte.byte_set(b"=+*/<>^")


@borrowing
def is_calculated(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether a sign of arithmetic stands before or after: "= 713 - 555 - 3989", "713 - 555 + 3989"."""
    before = run_start(data, p, max(1, p - 2), SPACES) - 1
    behind = run_end(data, end, min(hi, end + 2), SPACES)
    return (before >= 0 and _ARITHMETIC[data[before]]) or (behind < hi and _ARITHMETIC[data[behind]])


@borrowing
def stands_alone(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether `p:end`, with no letter or digit before it, touches none behind it, and no hyphen or dot that
    joins it to another digit.
    """
    if p > 0 and (data[p - 1] == byte.HYPHEN or data[p - 1] == byte.DOT) and digit_before(data, p - 1):
        return False
    return not is_continued(data, p, end, hi, DASH | DOT)
