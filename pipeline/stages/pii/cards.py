"""Payment card numbers.

Precision choices: a range and a length of an issuer, Luhn, the printed grouping, which may go on in the next
line, or none, no digit directly before or after. Some numbers also need a word such as "card" near them: 12
and 13 digits, because product codes have them too, and unbroken ones of more than 16, because 64-bit integers
do; digits inside a path; and the numbers from 35 that no issuer has, because payment test data is full of
them.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte
from pipeline.stages.pii.characters import (
    DASH,
    SPACE,
    after_value,
    before_space,
    digit_at,
    digit_run,
    is_digit,
    next_line,
    number,
    repeats,
    separator,
    stands_alone,
)
from pipeline.stages.pii.context import CARD_WORDS, word_near_after, word_near_before

_REACH = 48  # bytes
_IN_PATH = byte.byte_set(b"/#")

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


@borrowing
def _is_issued(first_six: int, digits: int) -> bool:
    for i in range(len(_ISSUERS)):
        if _ISSUERS[i, 0] <= first_six <= _ISSUERS[i, 1] and _ISSUERS[i, 2] <= digits <= _ISSUERS[i, 3]:
            return True
    return False


@borrowing
def _is_unassigned(data: np.ndarray, p: int) -> bool:
    """Whether the number at `p` begins with 35 but lies outside JCB's range."""
    prefix = number(data, p, p + 4)  # no grouping splits the first four digits
    return 3500 <= prefix < 3528 or 3589 < prefix < 3600


@borrowing
def _is_card_number(data: np.ndarray, p: int, end: int) -> bool:
    """Issuer range, length and Luhn (ISO/IEC 7812-1 annex B) of the digits in `p:end`."""
    total, count, first_six = 0, 0, 0
    for i in range(end - 1, p - 1, -1):
        if is_digit(data[i]):
            digit = data[i] - byte.ZERO
            first_six = digit * 100_000 + first_six // 10
            if count % 2:
                digit = digit * 2 - 9 if digit > 4 else digit * 2
            total += digit
            count += 1
    return total % 10 == 0 and _is_issued(first_six, count)


@borrowing
def _grouped_card_end(data: np.ndarray, p: int, hi: int) -> int:
    """Where the printed groups 4-4-4-4, 4-4-4-4-3, 4-6-5 or 4-6-4 at `p` end; 0 for other groups.

    An expiry month or a security code of 1 to 3 digits may follow them. One of the separators may be the end
    of a line.
    """
    q, widths, end, before_last, kind, wrapped = p, 0, 0, 0, 0, False
    for _ in range(6):
        digits = digit_run(data, q, hi)
        widths = widths * 10 + min(digits, 9)
        before_last, end = end, q + digits
        q = 0 if wrapped or widths in (4444, 465, 464) else next_line(data, end, hi)
        if digit_at(data, q, hi) and q > 0:
            wrapped = True
            continue
        q = end + 1
        kind = kind if kind else separator(data, end, hi)
        if kind & ~(SPACE | DASH) or separator(data, end, hi) != kind or not digit_at(data, q, hi):
            break
        if widths in (4444, 465, 464) and repeats(data, p, end, hi):
            break
    if kind == 0:
        return 0
    if widths == 44443 and _is_card_number(data, p, end):
        return end
    if 44441 <= widths <= 44443 or 4651 <= widths <= 4654 or 4641 <= widths <= 4643:
        return before_last
    return end if widths in (4444, 465, 464) else 0


@borrowing
def card_end(data: np.ndarray, p: int, digits: int, hi: int) -> int:
    """Where the card number at `p`, whose first run has `digits` digits, ends, or 0."""
    end = _grouped_card_end(data, p, hi) if digits == 4 else p + digits
    if end == 0 or not _is_card_number(data, p, end) or not stands_alone(data, p, end, hi):
        return 0
    width_before, ends = before_space(data, p)
    if digits == 4 and width_before == 4 and not ends:  # another group
        return 0
    in_path = p > 0 and _IN_PATH[data[p - 1]] and not after_value(data, p)
    weak = not (digits == 4 or 14 <= digits <= 16) or _is_unassigned(data, p) or in_path
    if not weak or word_near_before(data, p, CARD_WORDS, _REACH):
        return end
    return end if word_near_after(data, end, hi, CARD_WORDS, _REACH) else 0
