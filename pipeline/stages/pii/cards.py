"""Payment card numbers.

Precision choices: a range and a length of an issuer, Luhn, the printed grouping, which may go on in the next
line, or none, no digit directly before or after. Some numbers also need a word such as "card" near them: 12
and 13 digits, because product codes have them too, and unbroken ones of more than 16, because 64-bit integers
do; digits inside a path; and the numbers from 35 that no issuer has, because payment test data is full of
them.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import (
    CARD_WORDS,
    SEEDS,
    TOUCHING,
    is_among,
    is_one_of,
    keys,
    named_before,
    touching_word,
    word_near_after,
    word_near_before,
)

_REACH = 48  # bytes
_IN_PATH = byte.byte_set(b"/#")
_PAGES = keys(
    "status statuses id ids post posts item items tweet tweets photo photos video videos article articles "
    "message messages topic topics issue issues pull comment comments node"
)
_AFTER_NUMBER = keys("exp cvv cvc ccv")

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


_MAY_BEGIN = np.zeros(10_000, np.bool_)  # the first four digits of all ranges
for _first, _last in _ISSUERS[:, :2] // 100:
    _MAY_BEGIN[_first : _last + 1] = True


@borrowing
def _is_issued(first_six: int, digits: int) -> bool:
    for i in range(len(_ISSUERS)):
        if _ISSUERS[i, 0] <= first_six <= _ISSUERS[i, 1] and _ISSUERS[i, 2] <= digits <= _ISSUERS[i, 3]:
            return True
    return False


@borrowing
def _is_unassigned(data: np.ndarray, p: int) -> bool:
    """Whether the number at `p` begins with 35 but lies outside JCB's range."""
    prefix = char.number(data, p, p + 4)  # no grouping splits the first four digits
    return 3500 <= prefix < 3528 or 3589 < prefix < 3600


@borrowing
def _is_card_number(data: np.ndarray, p: int, end: int) -> bool:
    """Issuer range, length and Luhn (ISO/IEC 7812-1 annex B) of the digits in `p:end`."""
    total, count, first_six = 0, 0, 0
    for i in range(end - 1, p - 1, -1):
        if char.is_digit(data[i]):
            digit = data[i] - byte.ZERO
            first_six = digit * 100_000 + first_six // 10
            if count % 2:
                digit = digit * 2 - 9 if digit > 4 else digit * 2
            total += digit
            count += 1
    return total % 10 == 0 and _is_issued(first_six, count)


@borrowing
def _is_expiry(data: np.ndarray, q: int, hi: int) -> bool:
    """Whether the four digits at `q` are a month and a year, or a year, and no more groups follow them."""
    first = char.number(data, q, q + 2)
    goes_on = char.separator(data, q + 4, hi) == char.SPACE and char.digit_run(data, q + 5, hi) == 4
    return (1 <= first <= 12 or 19 <= first <= 20) and not goes_on


@borrowing
def _ends_before(data: np.ndarray, p: int, end: int, q: int, hi: int, kind: int) -> bool:
    """Whether `p:end` is a whole number, and the digits at `q`, after a gap of `kind`, are another."""
    width = char.digit_run(data, q, hi)
    if width < 4 or char.repeats(data, p, end, hi):
        return True
    return kind == char.SPACE and (width > 4 or _is_expiry(data, q, hi))


@borrowing
def _grouped_card_end(data: np.ndarray, p: int, hi: int) -> int:
    """Where the printed groups 4-4-4-4, 4-4-4-4-3, 4-6-5, 4-6-4 or 8-8 at `p` end; 0 for other groups.

    An expiry date, a security code or another number may follow them. One of the separators may be the end
    of a line.
    """
    q, widths, end, kind, wrapped = p, 0, 0, 0, False
    for _ in range(4):
        digits = char.digit_run(data, q, hi)
        widths = widths * 10 + min(digits, 9)
        end = q + digits
        following = 0 if wrapped else char.next_line(data, end, hi)
        one, size = char.gap(data, end, hi)
        q = following if following > 0 else end + size
        is_whole = widths in (4444, 465, 464, 88)
        if is_whole or q == end or not char.digit_at(data, q, hi):
            break
        if following > 0:
            wrapped = True
        elif kind == 0 or one == kind:
            kind = one
        else:
            return 0
    if widths not in (4444, 465, 464, 88) or kind == 0:
        return 0
    if one == kind and following == 0 and char.digit_at(data, q, hi):
        if widths == 4444 and char.digit_run(data, q, hi) == 3 and _is_card_number(data, p, q + 3):
            return q + 3
        return end if _ends_before(data, p, end, q, hi, kind) else 0
    return end


@borrowing
def _is_float(data: np.ndarray, end: int, hi: int) -> bool:
    """Whether ".0" makes a float of the digits before `end`, as tables with empty cells are written."""
    if end + 1 >= hi or data[end] != byte.DOT or data[end + 1] != byte.ZERO:
        return False
    zeros = char.digit_run(data, end + 1, hi)
    return zeros <= 2 and not char.word_at(data, end + 1 + zeros, hi)


@borrowing
def _is_id_in_path(data: np.ndarray, p: int) -> bool:
    """Whether the number at `p` names a page: after "#", or after "/" and a word such as "status"."""
    if p == 0 or not _IN_PATH[data[p - 1]] or char.after_value(data, p):
        return False
    start = char.run_start(data, p - 1, p - TOUCHING, char.LETTERS)
    return data[p - 1] == byte.HASH or start == p - 1 or is_one_of(data, start, p - 1, _PAGES)


@borrowing
def _touches(data: np.ndarray, p: int) -> bool:
    """Whether the digits at `p` touch letters other than "%B" of a magnetic stripe and a label of a card."""
    if not char.word_before(data, p) or (
        p > 1 and data[p - 1] == byte.UPPER_B and data[p - 2] == byte.PERCENT
    ):
        return False
    return not is_among(CARD_WORDS, touching_word(data, p))


@borrowing
def card_end(data: np.ndarray, p: int, digits: int, hi: int) -> int:
    """Where the card number at `p`, whose first run has `digits` digits, ends, or 0."""
    is_grouped = digits == 4 or digits == 8
    if is_grouped and not _MAY_BEGIN[char.number(data, p, p + 4)]:
        return 0
    end = _grouped_card_end(data, p, hi) if is_grouped else p + digits
    if end == 0 or not _is_card_number(data, p, end) or _touches(data, p):
        return 0
    expires = is_one_of(data, end, min(hi, end + 3), _AFTER_NUMBER)
    if not (char.stands_alone(data, p, end, hi) or _is_float(data, end, hi) or expires):
        return 0
    width_before, ends = char.before_space(data, p)
    if digits == 4 and width_before == 4 and not ends:  # another group
        return 0
    if named_before(data, p, SEEDS, SEEDS, _REACH):
        return 0
    weak = not (is_grouped or 14 <= digits <= 16) or _is_unassigned(data, p) or _is_id_in_path(data, p)
    if not weak or word_near_before(data, p, CARD_WORDS, _REACH):
        return end
    return end if word_near_after(data, end, hi, CARD_WORDS, _REACH) else 0
