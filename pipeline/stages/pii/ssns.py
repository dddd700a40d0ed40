"""US social security numbers.

Precision choices: 3-2-4 with hyphens, and perhaps spaces beside them, needs nothing else, unless a word and
a hyphen stand before it ("part-123-45-6789"). With other separators, or unbroken, it needs a word such as
"ssn", or another number, before it.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import (
    BESIDE_SSN_LABELS,
    NUMBERED,
    SSN_LABELS,
    SSN_WORDS,
    is_among,
    named_before,
    touching_word,
    word_near_before,
)

_REACH = 40  # bytes


@borrowing
def _ends_in_letter(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether one letter, as on Medicare cards, is joined to `p:end`, and nothing before it is."""
    one = char.word_at(data, end, hi) and not char.is_digit(data[end]) and not char.word_at(data, end + 1, hi)
    return one and not (p > 1 and data[p - 1] == byte.HYPHEN and char.digit_before(data, p - 1))


@borrowing
def ssn_end(data: np.ndarray, p: int, digits: int, hi: int, after_ssn: bool) -> int:
    """Where the number at `p`, whose first run has `digits` digits, ends, or 0. `after_ssn`: another one ends
    just before.

    Rules: SSA POMS RM 10201.035, and the two numbers that were published by mistake.
    """
    middle, last, kind = p + 3, p + 5, 0
    if digits != 9:
        kind, size = char.gap(data, p + 3, hi)
        middle = p + 3 + size
        if kind == 0 or char.digit_run(data, middle, hi) != 2:
            return 0
        again, size = char.gap(data, middle + 2, hi)
        last = middle + 2 + size
        if again != kind or char.digit_run(data, last, hi) != 4:
            return 0
    end = last + 4
    if char.word_before(data, p) and not is_among(SSN_WORDS, touching_word(data, p)):
        return 0
    area, group, serial = (
        char.number(data, p, p + 3),
        char.number(data, middle, middle + 2),
        char.number(data, last, end),
    )
    if area == 0 or area == 666 or area >= 900 or group == 0 or serial == 0:
        return 0
    if (area == 78 and group == 5 and serial == 1120) or (area == 219 and group == 9 and serial == 9999):
        return 0
    if not (char.stands_alone(data, p, end, hi) or (kind == char.DASH and _ends_in_letter(data, p, end, hi))):
        return 0
    in_name = p > 1 and data[p - 1] == byte.HYPHEN and char.is_letter(data[p - 2])
    is_wide = end - p > 11
    in_name = in_name or named_before(data, p, NUMBERED, BESIDE_SSN_LABELS, _REACH)
    if kind == char.DASH and not in_name and not (is_wide and char.is_calculated(data, p, end, hi)):
        return end
    if after_ssn or word_near_before(data, p, SSN_WORDS, _REACH):
        return end
    return end if named_before(data, p, SSN_LABELS, BESIDE_SSN_LABELS, _REACH) else 0
