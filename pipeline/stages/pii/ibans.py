"""International bank account numbers: a country of the registry, its exact length, mod 97."""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import keys, touching_word

# Country and length: SWIFT IBAN registry, release 99.
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 "
    "EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 "
    "IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 "
    "NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 "
    "SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)


def _iban_table() -> np.ndarray:
    table = np.zeros(26 * 26, np.int64)
    for entry in _IBAN_LENGTHS.split():
        table[(ord(entry[0]) - byte.UPPER_A) * 26 + ord(entry[1]) - byte.UPPER_A] = int(entry[2:])
    return table


_IBAN_LENGTH = _iban_table()
_IBAN = int(keys("iban")[0])


@borrowing
def _mod_97(remainder: int, c: int) -> int:
    """The remainder after one more character of the number that ISO 13616 builds (A = 10 ... Z = 35)."""
    if char.is_digit(c):
        return (remainder * 10 + (c - byte.ZERO)) % 97
    return (remainder * 100 + ((c | byte.CASE) - byte.A + 10)) % 97


@borrowing
def _begins(data: np.ndarray, start: int) -> bool:
    """Whether no word but "IBAN" touches `start`."""
    return not char.word_before(data, start) or (start >= 4 and touching_word(data, start) == _IBAN)


@borrowing
def iban_at(data: np.ndarray, p: int, hi: int) -> tuple[int, int]:
    """(start, end) of the IBAN whose check digits are at `p`, or (0, 0).

    Unbroken or in groups of four, which may go on in the next line, in upper or lower case. In upper case
    also in other groups, with wider gaps, dots and slashes, and with a space after the country.
    """
    is_free = p > 2 and data[p - 1] == byte.SPACE
    start = p - 3 if is_free else p - 2
    if start < 0 or p + 11 > hi or not char.is_digit(data[p + 1]):
        return 0, 0
    if not (char.ASCII_LETTERS[data[start]] and char.ASCII_LETTERS[data[start + 1]]):
        return 0, 0
    first, second = (data[start] | byte.CASE) - byte.A, (data[start + 1] | byte.CASE) - byte.A
    length = _IBAN_LENGTH[first * 26 + second]
    if length == 0 or not _begins(data, start):
        return 0, 0
    count, remainder, q = 4, 0, p + 2
    is_lower_case = char.is_lower(data[start]) or char.is_lower(data[start + 1])
    while count < length:
        if q < hi and not char.is_alnum(data[q]):
            kind, size = char.gap(data, q, hi)
            if kind == 0:
                return 0, 0
            is_wide = size > 1 and char.next_line(data, q, hi) == 0
            is_free = is_free or is_wide or count % 4 > 0 or kind in (char.DOT, char.SLASH)
            q += size
        if q >= hi or not char.is_alnum(data[q]):
            return 0, 0
        is_lower_case = is_lower_case or char.is_lower(data[q])
        remainder = _mod_97(remainder, data[q])
        count += 1
        q += 1
    remainder = _mod_97(_mod_97(remainder, data[start]), data[start + 1])
    remainder = _mod_97(_mod_97(remainder, data[p]), data[p + 1])
    if remainder != 1 or (q < hi and char.is_alnum(data[q])) or (is_free and is_lower_case):
        return 0, 0
    return start, q
