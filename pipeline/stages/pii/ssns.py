"""US social security numbers.

Precision choices: 3-2-4 with hyphens needs nothing else. With spaces or dots, or unbroken, it needs a word
such as "ssn", or another number, before it.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii.characters import DASH, digit_run, number, separator, stands_alone
from pipeline.stages.pii.context import SSN_WORDS, word_near_before

_REACH = 40  # bytes


@borrowing
def ssn_end(data: np.ndarray, p: int, digits: int, hi: int, after_ssn: bool) -> int:
    """Where the number at `p`, whose first run has `digits` digits, ends, or 0. `after_ssn`: another one ends
    just before.

    Rules: SSA POMS RM 10201.035, and the two numbers that were published by mistake.
    """
    middle, last, kind = p + 3, p + 5, 0
    if digits != 9:
        kind = separator(data, p + 3, hi)
        middle, last = p + 4, p + 7
        if kind == 0 or digit_run(data, middle, hi) != 2:
            return 0
        if separator(data, middle + 2, hi) != kind or digit_run(data, last, hi) != 4:
            return 0
    end = last + 4
    area, group, serial = number(data, p, p + 3), number(data, middle, middle + 2), number(data, last, end)
    if area == 0 or area == 666 or area >= 900 or group == 0 or serial == 0:
        return 0
    if (area == 78 and group == 5 and serial == 1120) or (area == 219 and group == 9 and serial == 9999):
        return 0
    if not stands_alone(data, p, end, hi):
        return 0
    return end if kind == DASH or after_ssn or word_near_before(data, p, SSN_WORDS, _REACH) else 0
