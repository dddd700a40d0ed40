"""Groups of digits with separators between them, which may be a telephone number."""

from typing import NamedTuple

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte
from pipeline.stages.pii.characters import (
    DASH,
    DOT,
    SLASH,
    SPACE,
    digit_at,
    digit_run,
    digits_ahead,
    repeats,
    separator,
)

POWER = 10 ** np.arange(19, dtype=np.int64)
_MOST_DIGITS = 17  # "00" and the 15 digits of E.164
_WIDEST_AREA_CODE = 6


class Number(NamedTuple):
    """The groups and what separates them. A trunk "(0)" after the country code is not counted."""

    end: int  # where it ends; 0 if it cannot be a telephone number
    digits: int
    value: int
    groups: int
    widths: int  # digits of each group, read as one number: 334 for 3-3-4. 9 stands for 9 and more.
    first_width: int
    lone_digit: bool  # a group after the first has one digit
    separators: int  # flags
    plus: bool
    brackets: bool


_NONE = Number(0, 0, 0, 0, 0, 0, False, 0, False, False)


@borrowing
def leading_zeros(value: int, digits: int, zeros: int) -> bool:
    """Whether the first `zeros` of the `digits` digits of `value` are 0."""
    return value < POWER[digits - zeros]


@borrowing
def _next_begins(
    data: np.ndarray, p: int, end: int, q: int, hi: int, kind: int, separators: int, is_uniform: bool
) -> bool:
    """Whether another number starts at `q`, after the complete one in `p:end` and a separator of `kind`.

    After a slash where 7 digits follow; else where the layout repeats, which groups of one width show only
    by another separator or a leading 0. Separators of two kinds are coordinates: "9.837 1418 9.553 1426".
    """
    if kind == SLASH and not separators & SLASH and digits_ahead(data, q, hi) >= 7:
        return True
    zeros = kind == SPACE and data[p] == byte.ZERO and data[q] == byte.ZERO
    if separators & (separators - 1) or (is_uniform and kind & separators and not zeros):
        return False
    return repeats(data, p, end, hi)


@borrowing
def read_groups(data: np.ndarray, p: int, hi: int) -> Number:
    """The digit groups at `p`."""
    q, digits, value, groups, widths, first_width, end = p, 0, 0, 0, 0, 0, 0
    separators, last_kind = 0, 0
    lone_digit, plus, brackets, is_open, is_uniform = False, False, False, False, True
    if data[q] == byte.OPENING_BRACKET:
        is_open = True
        q += 1
    if q < hi and data[q] == byte.PLUS:
        plus = True
        q += 1
    while True:
        width = digit_run(data, q, hi)
        if width == 0 or digits + width > _MOST_DIGITS:
            return _NONE
        trunk = is_open and groups == 1 and width == 1 and data[q] == byte.ZERO
        if not trunk:
            for i in range(q, q + width):
                value = value * 10 + (data[i] - byte.ZERO)
            if groups == 0:
                first_width = width
            elif width == 1:
                lone_digit = True
            is_uniform = is_uniform and width == first_width
            digits += width
            widths = widths * 10 + min(width, 9)
            groups += 1
        q += width
        closed = False
        if is_open:
            # wider than any area code: the brackets enclose the whole number
            if q >= hi or data[q] != byte.CLOSING_BRACKET or width > _WIDEST_AREA_CODE:
                return _NONE
            is_open, brackets, closed = False, True, True
            q += 1
        end = q
        kind = separator(data, q, hi)
        q += kind != 0
        enough = 9 if leading_zeros(value, digits, 1) else 7
        if (
            kind == SPACE
            and digits >= enough
            and (digit_run(data, q, hi) == 1 or (last_kind in (DASH, DOT) and (digits >= 10 or not plus)))
        ):
            break
        if (
            kind > 0
            and digits >= enough
            and digit_at(data, q, hi)
            and _next_begins(data, p, end, q, hi, kind, separators, is_uniform)
        ):
            break
        if groups == 1 and not brackets and q < hi and data[q] == byte.OPENING_BRACKET and digits <= 4:
            is_open = True
            q += 1
        if not (digit_at(data, q, hi) and (kind > 0 or closed or is_open)):
            break
        if kind > 0:
            separators |= kind
            last_kind = kind
    return Number(end, digits, value, groups, widths, first_width, lone_digit, separators, plus, brackets)
