"""Groups of digits with separators between them, which may be a telephone number."""

from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char, group_widths

POWER = 10 ** np.arange(19, dtype=np.int64)
_MOST_DIGITS = 17  # "00" and the 15 digits of E.164
_WIDEST_AREA_CODE = 6
_IN_GAP = byte.byte_set(b" -./\r\n" + bytes([byte.LONG_DASH, byte.RAISED_DOT]))


class Number(NamedTuple):
    """The groups and what separates them. A trunk "(0)" after the country code is not counted."""

    end: int  # where it ends; 0 if it cannot be a telephone number
    digits: int
    value: int
    groups: int
    widths: int  # digits of each group, read as one number: 334 for 3-3-4. 9 stands for 9 and more.
    first_width: int
    lone_digits: int  # groups of one digit after the first
    separators: int  # flags
    plus: bool
    brackets: bool
    half_open: bool  # "504) 891-8259": the bracket that closes the area code was not opened here
    wide: int  # whether gaps of more than one byte are among the separators: 2 if one is the end of a line


_NONE = Number(0, 0, 0, 0, 0, 0, 0, 0, False, False, False, 0)


@borrowing
def leading_zeros(value: int, digits: int, zeros: int) -> bool:
    """Whether the first `zeros` of the `digits` digits of `value` are 0."""
    return value < POWER[digits - zeros]


@borrowing
def is_one_kind(separators: int) -> bool:
    """Whether no two flags are set: all separators are of one kind, or there are none."""
    return separators & (separators - 1) == 0


@borrowing
def _next_begins(data: np.ndarray, p: int, number: Number, q: int, hi: int, kind: int) -> bool:
    """Whether another number starts at `q`, after the complete one at `p` and a separator of `kind`.

    After a slash where 7 digits follow; else where the layout repeats, which groups of one width show only
    by another separator or a leading 0. Separators of two kinds are coordinates: "9.837 1418 9.553 1426".
    """
    separators = number.separators
    if kind == char.SLASH and not separators & char.SLASH and char.digits_ahead(data, q, hi) >= 7:
        return True
    is_uniform = number.widths == min(number.first_width, 9) * (POWER[number.groups] // 9)  # 333 = 3 * 111
    zeros = kind == char.SPACE and data[p] == byte.ZERO and data[q] == byte.ZERO
    if not is_one_kind(separators) or (is_uniform and kind & separators and not zeros):
        return False
    return char.repeats(data, p, number.end, hi)


@borrowing
def date_at(data: np.ndarray, q: int, hi: int) -> bool:
    """Whether a date with its year first or last, or a time of day, begins at `q`."""
    width = char.digit_run(data, q, hi)
    end = q + width
    if end + 2 >= hi or not char.is_digit(data[end + 1]):
        return False
    if data[end] == byte.COLON:
        return width <= 2 and char.digit_run(data, end + 1, hi) == 2
    joins = data[end] == byte.HYPHEN or data[end] == byte.DOT or data[end] == byte.SLASH
    middle = char.digit_run(data, end + 1, hi)
    last = end + 1 + middle
    if not joins or middle > 2 or last >= hi or data[last] != data[end]:
        return False
    closing = char.digit_run(data, last + 1, hi)
    return (width == 4 and closing == 2) or (width <= 2 and closing == 4)


@borrowing
def _is_complete(
    data: np.ndarray, p: int, number: Number, q: int, hi: int, kind: int, last_kind: int
) -> bool:
    """Whether the groups at `p` are a number and what follows at `q`, after a gap of `kind`, is not."""
    end, digits = number.end, number.digits
    enough = 9 if leading_zeros(number.value, digits, 1) else 7
    if kind == 0 or digits < enough or not char.digit_at(data, q, hi):
        return False
    if data[end] == byte.NEWLINE or data[end] == byte.RETURN:
        return True
    if q - end > 1:
        enough = 10 if number.plus or (enough == 9 and kind == char.DASH) else enough
        enough = 11 if number.widths // 10 == 13 else enough  # "1 713 555 - 3989"
        after = q + char.digit_run(data, q, hi)
        extension = kind == char.DASH and after - q < 4 and not char.separator(data, after, hi)
        return digits >= enough and not extension
    if kind == char.SPACE:
        prefixed = number.groups > 2 and digits < 10 and char.digit_run(data, q, hi) == 4  # "91-22-2345 6790"
        ends = last_kind in (char.DASH, char.DOT) and (digits >= 10 or not (number.plus or prefixed))
        if ends or char.digit_run(data, q, hi) == 1 or date_at(data, q, hi):
            return True
    is_american = number.widths in group_widths.AMERICAN_LAYOUTS and not number.plus
    if is_american and kind == char.SLASH and not number.separators & char.SLASH:
        return True
    return _next_begins(data, p, number, q, hi, kind)


@borrowing
def _area_code(data: np.ndarray, q: int, hi: int) -> int:
    """Where the digits at `q` that a bracket closes end: "0-22" and "41 1" too. 0 if they are too many."""
    end, digits = q, 0
    while end < hi and digits <= _WIDEST_AREA_CODE:
        if char.is_digit(data[end]):
            digits += 1
        elif data[end] == byte.CLOSING_BRACKET:
            return end
        elif not (
            char.separator(data, end, hi) & (char.SPACE | char.DASH) and char.digit_at(data, end + 1, hi)
        ):
            return 0
        end += 1
    return 0


@borrowing
def _with_digits(data: np.ndarray, q: int, stop: int, value: int) -> tuple[int, int]:
    """`value` with the digits in `q:stop` behind it, and how many these are."""
    width = 0
    for i in range(q, stop):
        if char.is_digit(data[i]):
            width += 1
            value = value * 10 + (data[i] - byte.ZERO)
    return value, width


@borrowing
def _closes_area_code(data: np.ndarray, q: int, hi: int) -> bool:
    """Whether a bracket at `q` ends an area code, of which nothing shows the beginning."""
    if q + 3 >= hi or (data[q] != byte.CLOSING_BRACKET and data[q] != byte.CLOSING_SQUARE):
        return False
    return char.is_digit(data[q + 1]) or char.is_digit(data[q + 2])


@borrowing
def _gap(data: np.ndarray, end: int, hi: int, wide: bool) -> tuple[int, int]:
    """The kind of the gap at `end`, 0 for none, and where it ends."""
    if wide:
        kind, size = char.gap(data, end, hi)
        return kind, end + size
    kind = char.separator(data, end, hi)
    return kind, end + (kind != 0)


@borrowing
def read_groups(data: np.ndarray, p: int, hi: int, wide: bool) -> Number:
    """The digit groups at `p`; `wide`: with gaps of up to three bytes, or the end of a line, between."""
    digits, value, groups, widths, first_width, lone_digits = 0, 0, 0, 0, 0, 0
    separators, last_kind, width_of_gaps = 0, 0, 0
    brackets, half_open = False, False
    is_open = data[p] == byte.OPENING_BRACKET  # before the next group
    q = p + is_open
    plus = q < hi and data[q] == byte.PLUS
    q += plus
    while True:
        stop = _area_code(data, q, hi) if is_open else q + char.digit_run(data, q, hi)
        if stop <= q or digits + stop - q > _MOST_DIGITS:
            return _NONE
        longer, width = _with_digits(data, q, stop, value)
        if not (is_open and groups == 1 and stop == q + 1 and data[q] == byte.ZERO):  # a trunk "(0)"
            if groups == 0:
                first_width = width
            if (groups > 0 and width == 1) or (stop - q != width and data[q] != byte.ZERO):
                lone_digits += 1
            value = longer
            digits += width
            widths = widths * 10 + min(width, 9)
            groups += 1
        closed = is_open
        if groups == 1 and not plus and 2 <= width <= 5 and not (is_open or brackets):
            closed = half_open = _closes_area_code(data, stop, hi)
        brackets = brackets or closed
        end = stop + closed
        kind, q = _gap(data, end, hi, wide)
        number = Number(
            end=end,
            digits=digits,
            value=value,
            groups=groups,
            widths=widths,
            first_width=first_width,
            lone_digits=lone_digits,
            separators=separators,
            plus=plus,
            brackets=brackets,
            half_open=half_open,
            wide=width_of_gaps,
        )
        if _is_complete(data, p, number, q, hi, kind, last_kind):
            return number
        is_open = groups == 1 and not brackets and q < hi and data[q] == byte.OPENING_BRACKET and digits <= 4
        if not (char.digit_at(data, q + is_open, hi) and (kind > 0 or closed or is_open)):
            return number
        if kind > 0:
            separators |= kind
            last_kind = kind
            if char.next_line(data, end + (kind == char.DASH), hi) > 0:
                width_of_gaps = 2
            elif q - end > 1:
                width_of_gaps = max(width_of_gaps, 1)
        q += is_open


@borrowing
def goes_on_wide(data: np.ndarray, end: int, hi: int) -> bool:
    """Whether a gap of more than one byte and a digit or bracket follow at `end`."""
    if end + 2 >= hi:
        return False
    ends_line = data[end] == byte.NEWLINE or data[end] == byte.RETURN
    if not ends_line and not (
        char.separator(data, end, hi) and _IN_GAP[data[end + 1]]
    ):  # as behind nearly all numbers
        return False
    _, size = char.gap(data, end, hi)
    q = end + size
    return (
        (size > 1 or (size == 1 and data[end] == byte.NEWLINE))
        and q < hi
        and (char.is_digit(data[q]) or data[q] == byte.OPENING_BRACKET)
    )
