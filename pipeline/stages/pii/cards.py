"""Payment card numbers.

Precision choices: an issuer's range, a length that issuer uses, Luhn, the printed grouping or none, no digit
beside it. 12 and 13 digits, which product codes have too, digits inside a path or a query, and those in 35
that no issuer has been assigned, which payment test data is full of, need a word such as "card" near them.
"""

import numpy as np

from pipeline.stages.compiled import part
from pipeline.stages.pii.characters import (
    DASH,
    SPACE,
    digit_before,
    digit_run,
    is_digit,
    separator,
    stands_alone,
)
from pipeline.stages.pii.context import CARD_WORDS, word_near_after, word_near_before

_REACH = 48

# (first, last) six digits, shortest and longest number, from the issuers' published ranges (ISO/IEC 7812).
_ISSUERS = np.array(
    [
        (400000, 499999, 16, 16),  # Visa; 13 and 19 digits below
        (400000, 499999, 13, 13),
        (400000, 499999, 19, 19),
        (510000, 559999, 16, 16),  # Mastercard
        (222100, 272099, 16, 16),
        (340000, 349999, 15, 15),  # American Express
        (370000, 379999, 15, 15),
        (601100, 601199, 16, 19),  # Discover
        (644000, 659999, 16, 19),
        (620000, 629999, 16, 19),  # UnionPay
        (300000, 305999, 14, 14),  # Diners Club; 16 digits since 2005
        (309500, 309599, 14, 14),
        (360000, 369999, 14, 14),
        (380000, 399999, 14, 14),
        (300000, 305999, 16, 16),
        (350000, 359999, 16, 19),  # JCB: 3528 to 3589; the rest with context only
        (213100, 213199, 15, 15),
        (180000, 180099, 15, 15),
        (500000, 509999, 12, 19),  # Maestro
        (560000, 589999, 12, 19),
        (630400, 630499, 12, 19),
        (639000, 639099, 12, 19),
        (670000, 679999, 12, 19),
        (60400, 60499, 12, 19),
        (220000, 220499, 16, 19),  # Mir
        (817200, 826099, 16, 16),  # RuPay
        (979200, 979299, 16, 16),  # Troy
    ],
    dtype=np.int64,
)


@part
def _is_issued(first_six: int, digits: int) -> bool:
    for i in range(len(_ISSUERS)):
        if _ISSUERS[i, 0] <= first_six <= _ISSUERS[i, 1] and _ISSUERS[i, 2] <= digits <= _ISSUERS[i, 3]:
            return True
    return False


@part
def _is_unassigned(data: np.ndarray, p: int) -> bool:
    """Whether the number at `p` begins with 35 but is outside of JCB's range."""
    prefix = 0
    for i in range(p, p + 4):  # whatever the grouping, the first four digits stand together
        prefix = prefix * 10 + (data[i] - 48)
    return 3500 <= prefix < 3528 or 3589 < prefix < 3600


@part
def _is_card_number(data: np.ndarray, p: int, end: int) -> bool:
    """Issuer range, length and Luhn (ISO/IEC 7812-1 annex B) of the digits in `p:end`."""
    total, count, first_six = 0, 0, 0
    for i in range(p, end):
        if is_digit(data[i]):
            count += 1
            if count <= 6:
                first_six = first_six * 10 + (data[i] - 48)
    left = count
    for i in range(p, end):
        if is_digit(data[i]):
            digit = data[i] - 48
            if left % 2 == 0:
                digit = digit * 2 - 9 if digit > 4 else digit * 2
            total += digit
            left -= 1
    return total % 10 == 0 and _is_issued(first_six, count)


@part
def _grouped_card_end(data: np.ndarray, p: int, lo: int, hi: int) -> int:
    """Where the printed groups 4-4-4-4, 4-4-4-4-3, 4-6-5 or 4-6-4 at `p` end; 0 for other groups."""
    _, kind = separator(data, p + 4, hi)
    if (kind != SPACE and kind != DASH) or (p > lo and data[p - 1] == 32 and digit_before(data, p - 1, lo)):
        return 0
    q, shape, end, before_last = p, 0, 0, 0
    for _ in range(6):
        digits = digit_run(data, q, hi)
        shape = shape * 16 + min(digits, 15)
        before_last, end = end, q + digits
        width, next_kind = separator(data, end, hi)
        if next_kind != kind:
            break
        if not (end + width < hi and is_digit(data[end + width])):
            break
        q = end + width
    if shape == 0x44443 and _is_card_number(data, p, end):
        return end
    if 0x44441 <= shape <= 0x44443 or 0x4651 <= shape <= 0x4654 or 0x4641 <= shape <= 0x4643:
        return before_last  # an expiry month or a security code follows
    return end if shape in (0x4444, 0x465, 0x464) else 0


@part
def card_end(data: np.ndarray, p: int, digits: int, lo: int, hi: int) -> int:
    """Where the card number at `p`, whose first run has `digits` digits, ends, or 0."""
    end = _grouped_card_end(data, p, lo, hi) if digits == 4 else p + digits
    if end == 0 or not _is_card_number(data, p, end) or not stands_alone(data, p, end, lo, hi):
        return 0
    weak = (
        end - p < 14
        or _is_unassigned(data, p)
        or (p > lo and (data[p - 1] == 47 or data[p - 1] == 61 or data[p - 1] == 35 or data[p - 1] == 38))
    )
    if weak and not (
        word_near_before(data, p, lo, CARD_WORDS, _REACH)
        or word_near_after(data, end, hi, CARD_WORDS, _REACH)
    ):
        return 0
    return end
