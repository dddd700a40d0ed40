"""Numbers with a check of their own: US social security numbers, payment cards, IBANs.

Precision choices. SSN: 3-2-4 with hyphens stands alone; with spaces or dots, or unbroken, it needs a word such as "ssn" before it. Cards: issuer
range, the lengths that issuer uses, Luhn, printed grouping or none, no digit beside it; 12 and 13 digits, which product codes have too, and
digits inside a path or a query need a word such as "card". IBAN: a country of the registry, its exact length, mod 97.
"""

import numpy as np
from numba import njit

from pipeline.stages.pii.characters import (
    DASH,
    SPACE,
    digit_run,
    is_alnum,
    is_digit,
    mark_length,
    number_at,
    number_before,
    separator,
    word_at,
    word_before,
)
from pipeline.stages.pii.context import CARD_WORDS, SSN_WORDS, word_near_before

_SSN_REACH = 40
_CARD_REACH = 48


@njit
def _number(data: np.ndarray, start: int, end: int) -> int:
    value = 0
    for i in range(start, end):
        value = value * 10 + (np.int64(data[i]) - 48)
    return value


@njit
def _stands_alone(data: np.ndarray, p: int, end: int, lo: int, hi: int) -> bool:
    """Whether neither a letter, nor a digit, nor a separator and a digit is beside `p:end`."""
    if word_before(data, p, lo) or word_at(data, end, hi) or (end < hi and data[end] == 64):
        return False
    if p > lo and 43 <= data[p - 1] <= 47 and number_before(data, p - 1, lo):
        return False
    width, kind = separator(data, end, hi)
    return not (width > 0 and kind != SPACE and number_at(data, end + width, hi))


@njit
def ssn_end(data: np.ndarray, p: int, digits: int, lo: int, hi: int) -> int:
    """Where the number at `p`, whose first run has `digits` digits, ends, or 0. Rules: SSA POMS RM 10201.035 and the two published in error."""
    if digits == 9:
        end, kind = p + 9, 0
        area, group, serial = _number(data, p, p + 3), _number(data, p + 3, p + 5), _number(data, p + 5, end)
    else:
        width, kind = separator(data, p + 3, hi)
        middle = p + 3 + width
        if width == 0 or digit_run(data, middle, hi) != 2:
            return 0
        second_width, second_kind = separator(data, middle + 2, hi)
        last = middle + 2 + second_width
        if second_kind != kind or digit_run(data, last, hi) != 4:
            return 0
        end = last + 4
        area, group, serial = _number(data, p, p + 3), _number(data, middle, middle + 2), _number(data, last, end)
    if area == 0 or area == 666 or area >= 900 or group == 0 or serial == 0 or not _stands_alone(data, p, end, lo, hi):
        return 0
    if (area == 78 and group == 5 and serial == 1120) or (area == 219 and group == 9 and serial == 9999):
        return 0
    if kind != DASH and not word_near_before(data, p, lo, SSN_WORDS, _SSN_REACH):
        return 0
    return end


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
        (350000, 359999, 16, 19),  # JCB: 3528 to 3589, and the rest of 35 that test data uses
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


@njit
def _is_issued(first_six: int, digits: int) -> bool:
    for i in range(len(_ISSUERS)):
        if _ISSUERS[i, 0] <= first_six <= _ISSUERS[i, 1] and _ISSUERS[i, 2] <= digits <= _ISSUERS[i, 3]:
            return True
    return False


@njit
def _is_card_number(data: np.ndarray, p: int, end: int) -> bool:
    """Issuer range, length and Luhn (ISO/IEC 7812-1 annex B) of the digits in `p:end`."""
    total, count, first_six = 0, 0, 0
    for i in range(p, end):
        if is_digit(data[i]):
            count += 1
            if count <= 6:
                first_six = first_six * 10 + (np.int64(data[i]) - 48)
    left = count
    for i in range(p, end):
        if is_digit(data[i]):
            digit = np.int64(data[i]) - 48
            if left % 2 == 0:
                digit = digit * 2 - 9 if digit > 4 else digit * 2
            total += digit
            left -= 1
    return total % 10 == 0 and _is_issued(first_six, count)


@njit
def _grouped_card_end(data: np.ndarray, p: int, lo: int, hi: int) -> int:
    """Where the printed groups 4-4-4-4, 4-4-4-4-3, 4-6-5 or 4-6-4 at `p` end; 0 for other groups."""
    _, kind = separator(data, p + 4, hi)
    if (kind != SPACE and kind != DASH) or (p > lo and data[p - 1] == 32 and number_before(data, p - 1, lo)):
        return 0
    q, shape, end, before_last = p, 0, 0, 0
    for _ in range(6):
        digits = digit_run(data, q, hi)
        shape = shape * 16 + min(digits, 15)
        before_last, end = end, q + digits
        width, next_kind = separator(data, end, hi)
        if next_kind != kind:
            break
        if mark_length(data, end + width, hi) > 0:
            return 0
        if not (end + width < hi and is_digit(data[end + width])):
            break
        q = end + width
    if shape == 0x44443 and _is_card_number(data, p, end):
        return end
    if 0x44441 <= shape <= 0x44443 or 0x4651 <= shape <= 0x4654 or 0x4641 <= shape <= 0x4643:
        return before_last  # an expiry month or a security code follows
    return end if shape in (0x4444, 0x465, 0x464) else 0


@njit
def card_end(data: np.ndarray, p: int, digits: int, lo: int, hi: int) -> int:
    """Where the card number at `p`, whose first run has `digits` digits, ends, or 0."""
    end = _grouped_card_end(data, p, lo, hi) if digits == 4 else p + digits
    if end == 0 or not _is_card_number(data, p, end) or not _stands_alone(data, p, end, lo, hi):
        return 0
    weak = end - p < 14 or (p > lo and (data[p - 1] == 47 or data[p - 1] == 61 or data[p - 1] == 35 or data[p - 1] == 38))
    if weak and not word_near_before(data, p, lo, CARD_WORDS, _CARD_REACH):
        return 0
    return end


# Country and length: SWIFT IBAN registry, release 99.
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 "
    "GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 "
    "MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 "
    "UA29 VA22 VG24 XK20 YE30"
)


def _iban_table() -> np.ndarray:
    table = np.zeros(26 * 26, np.int64)
    for entry in _IBAN_LENGTHS.split():
        table[(ord(entry[0]) - 65) * 26 + ord(entry[1]) - 65] = int(entry[2:])
    return table


_IBAN_LENGTH = _iban_table()


@njit
def _mod_97(remainder: int, c: int) -> int:
    """One more character of the number that ISO 13616 builds (A = 10 ... Z = 35)."""
    if is_digit(c):
        return (remainder * 10 + (c - 48)) % 97
    return (remainder * 100 + ((c | 32) - 87)) % 97


@njit
def iban_at(data: np.ndarray, p: int, lo: int, hi: int) -> tuple[int, int]:
    """(start, end) of the IBAN whose check digits are at `p`, or (0, 0): unbroken or in groups of four, in either case."""
    start = p - 2
    if start < lo or p + 11 > hi or is_digit(data[start]) or not is_alnum(data[start]) or not is_digit(data[p + 1]):
        return 0, 0
    first, second = (data[start] | 32) - 97, (data[p - 1] | 32) - 97
    length = _IBAN_LENGTH[first * 26 + second]
    if length == 0 or word_before(data, start, lo):
        return 0, 0
    count, remainder, q = 4, 0, p + 2
    while count < length:
        if count % 4 == 0:
            width, kind = separator(data, q, hi)
            if kind == SPACE or kind == DASH:
                q += width
        if q >= hi or not is_alnum(data[q]):
            return 0, 0
        remainder = _mod_97(remainder, np.int64(data[q]))
        count += 1
        q += 1
    for i in range(start, p + 2):
        remainder = _mod_97(remainder, np.int64(data[i]))
    if remainder != 1 or word_at(data, q, hi):
        return 0, 0
    return start, q
