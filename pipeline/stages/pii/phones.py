"""Telephone numbers: E.164 with "+" or "00", North America, national numbers with a trunk 0, and local ones
beside a word that says so.

Precision choices. Standing alone count: "+" and an assigned country code with 8 to 15 digits; 3-3-4 with
hyphens, dots or an area code in brackets (area 2-9; with spaces only, exchange 2-9 too); an area code in
brackets before hyphenated groups; what starts with one 0 and holds 9 to 13 digits in three or more groups, or
10 or 11 in an area code of at least 3 and the rest, or unbroken (10 digits only if they are neither an ISBN
nor binary); ten digits with an extension. Everything else of 7 to 12 digits (other unbroken runs, two groups,
numbers without a 0) needs a word such as "phone", "call" or "fax" within 40 bytes before it, a label right
after it, or another telephone number just before it. Dates, round numbers and decimals never count.
Extensions belong to the number.
"""

import numpy as np

from pipeline.stages.compiled import part
from pipeline.stages.pii.characters import (
    DASH,
    DOT,
    SLASH,
    SPACE,
    digit_at,
    digit_before,
    digit_run,
    is_alnum,
    is_digit,
    separator,
    word_at,
    word_before,
)
from pipeline.stages.pii.context import PHONE_WORDS, label_after, names_a_version, word_near_before

_REACH = 40
_NO, _WITH_CONTEXT, _YES = 0, 1, 2

# ITU-T E.164 country codes in use; 1 and 7 are whole zones.
_COUNTRY_CODES = (
    "20 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 237 238 239 "
    "240 241 242 243 244 245 246 247 248 249 "
    "250 251 252 253 254 255 256 257 258 260 261 262 263 264 265 266 267 268 269 27 290 291 297 298 299 30 "
    "31 32 33 34 350 351 352 353 354 355 356 "
    "357 358 359 36 370 371 372 373 374 375 376 377 378 380 381 382 383 385 386 387 389 39 40 41 420 421 423 "
    "43 44 45 46 47 48 49 500 501 502 503 "
    "504 505 506 507 508 509 51 52 53 54 55 56 57 58 590 591 592 593 594 595 596 597 598 599 60 61 62 63 64 "
    "65 66 670 672 673 674 675 676 677 678 "
    "679 680 681 682 683 685 686 687 688 689 690 691 692 7 800 808 81 82 84 850 852 853 855 856 86 870 878 "
    "880 881 882 883 886 888 90 91 92 93 94 "
    "95 960 961 962 963 964 965 966 967 968 970 971 972 973 974 975 976 977 979 98 992 993 994 995 996 998 1"
)
_IS_COUNTRY_CODE = np.zeros(1000, np.bool_)
_IS_COUNTRY_CODE[[int(code) for code in _COUNTRY_CODES.split()]] = True

_POWER = 10 ** np.arange(19, dtype=np.int64)


@part
def _groups(data: np.ndarray, p: int, hi: int) -> tuple[int, int, int, int, int, int, bool, bool]:
    """The digit groups at `p`: (end, digits, value, shape, groups, separators, plus, bracket); end is 0 if
    they cannot be a number.

    `shape` has one hexadecimal digit for the length of each group; a trunk "(0)" after the country code is
    not counted.
    """
    q, digits, value, shape, groups, separators, last_kind, end = p, 0, 0, 0, 0, 0, 0, 0
    plus, bracket, is_open = False, False, False
    if data[q] == 40:
        is_open = True
        q += 1
    if q < hi and data[q] == 43:
        plus = True
        q += 1
    while True:
        width = digit_run(data, q, hi)
        if width == 0 or digits + width > 17:
            return 0, 0, 0, 0, 0, 0, False, False
        trunk = is_open and groups == 1 and width == 1 and data[q] == 48
        if not trunk:
            for i in range(q, q + width):
                value = value * 10 + (data[i] - 48)
            digits += width
            shape = shape * 16 + min(width, 15)
            groups += 1
        q += width
        closed = False
        if is_open:
            # more digits than any code has: the brackets are round the whole number
            if q >= hi or data[q] != 41 or width > 6:
                return 0, 0, 0, 0, 0, 0, False, False
            is_open, bracket, closed = False, True, True
            q += 1
        end = q
        step, kind = separator(data, q, hi)
        q += step
        enough = 9 if value < _POWER[digits - 1] else 7  # with the 0 of the area code
        if (
            kind == SPACE
            and digits >= enough
            and (digit_run(data, q, hi) == 1 or (last_kind in (DASH, DOT) and (digits >= 10 or not plus)))
        ):
            break
        if groups == 1 and not bracket and q < hi and data[q] == 40 and digits <= 4:
            is_open = True
            q += 1
        if not (q < hi and is_digit(data[q]) and (step > 0 or closed or is_open)):
            break
        if step > 0:
            separators |= kind
            last_kind = kind
    return end, digits, value, shape, groups, separators, plus, bracket


@part
def _international(value: int, digits: int, groups: int) -> int:
    """Whether `digits` digits, country code first, are an E.164 number (8 to 15 digits; North America has
    exactly 11).
    """
    if digits < 8 or digits > 15:
        return _NO
    first = value // _POWER[digits - 1]
    if first == 1:
        return _YES if digits == 11 and value // _POWER[9] % 10 >= 2 else _NO
    code = 1 if first == 7 else 2
    if code == 2 and not _IS_COUNTRY_CODE[value // _POWER[digits - 2]]:
        code = 3
        if value // _POWER[digits - 3] < 100 or not _IS_COUNTRY_CODE[value // _POWER[digits - 3]]:
            return _NO
    if value // _POWER[digits - code - 1] % 10 == 0 and digits < 10:
        return _NO
    return _YES if groups > 1 or digits > 8 else _WITH_CONTEXT


@part
def _is_isbn_or_binary(value: int) -> bool:
    """Whether ten digits have the check digit of an ISBN-10 (those of English books begin with 0), or are
    noughts and ones.
    """
    total, largest = 0, 0
    for weight in range(1, 11):
        total += weight * (value % 10)
        largest = max(largest, value % 10)
        value //= 10
    return total % 11 == 0 or largest < 2


@part
def _is_date(shape: int, value: int, separators: int) -> bool:
    if shape == 0x422:
        return 1000 <= value // 10000 <= 2199
    if shape == 0x224:
        return 1000 <= value % 10000 <= 2199
    return (
        shape == 0x44
        and separators == DASH
        and 1000 <= value // 10000 <= 2199
        and 1000 <= value % 10000 <= 2199
    )


@part
def _small_groups(shape: int, groups: int) -> int:
    """How many groups after the first have one digit."""
    small = 0
    for _ in range(groups - 1):
        small += shape % 16 == 1
        shape //= 16
    return small


@part
def _judge(
    digits: int, value: int, shape: int, groups: int, separators: int, plus: bool, bracket: bool
) -> int:
    """Whether the groups are a telephone number alone, with context, or not at all."""
    first_width = shape >> (4 * (groups - 1))
    zeros = value < _POWER[digits - 1]
    if plus:
        return (
            _WITH_CONTEXT
            if groups == 2 and separators == DOT and value // _POWER[digits - 1] != 1
            else _international(value, digits, groups)
        )
    if _small_groups(shape, groups) > 0:
        return _NO
    if zeros and digits >= 10 and value < _POWER[digits - 2]:
        verdict = _international(value, digits - 2, groups) if value >= _POWER[digits - 3] else _NO
        return min(verdict, _YES if first_width >= 3 and groups > 1 else _WITH_CONTEXT)
    north_american = (digits == 10 and (shape == 0x334 or (shape == 0x37 and bracket))) or (
        digits == 11 and shape == 0x1334
    )
    if north_american and value // _POWER[9] % 10 >= 2 and value // _POWER[10] <= 1:
        return _YES if bracket or separators != SPACE or value // _POWER[6] % 10 >= 2 else _WITH_CONTEXT
    if bracket and groups == 3 and 9 <= digits <= 11 and separators & DASH and 2 <= first_width <= 4:
        return _YES
    if (
        bracket
        and groups >= 4
        and digits == 11
        and separators & DASH
        and first_width == 1
        and value // _POWER[10] in (7, 8)
    ):
        return _YES  # Russia's trunk prefix and its country code
    if (
        groups == 1
        and zeros
        and value >= _POWER[digits - 2]
        and (digits == 11 or (digits == 10 and not _is_isbn_or_binary(value)))
    ):
        return _YES
    if zeros and value >= _POWER[digits - 2] and 9 <= digits <= 13 and 2 <= first_width <= 5:
        if bracket and groups > 1:
            return _YES
        mixed = separators & (separators - 1)
        if groups > 2 and (digits <= 11 or (groups == 3 and first_width >= 4)):
            return _YES if not mixed or mixed == DASH or separators & SLASH else _WITH_CONTEXT
        if groups == 2 and 10 <= digits <= 11 and first_width >= 3 and separators & (SPACE | DASH):
            return _YES
    if (
        digits < 7
        or digits > 12
        or groups > 5
        or value % 1000 == 0
        or (first_width == 1 and digits != 11 and not bracket and (groups < 4 or digits < 9))
    ):
        return _NO
    if _is_date(shape, value, separators) or (separators & (SLASH | DOT) and groups == 2 and not zeros):
        return _NO
    return _WITH_CONTEXT


@part
def _extension_end(data: np.ndarray, end: int, hi: int) -> int:
    """Where "x12", " ext. 12" or " extension 12" after the number at `end` ends; `end` itself if there is
    none.
    """
    q = end
    while q < hi and q - end < 2 and (data[q] == 32 or data[q] == 44):
        q += 1
    word = q
    while q < hi and q - word < 9 and is_alnum(data[q]) and not is_digit(data[q]):
        q += 1
    letters = q - word
    known = letters > 0 and data[word] | 32 == (120 if letters == 1 else 101)
    if letters > 1:
        known = (
            known
            and (letters == 3 or letters == 9)
            and data[word + 1] | 32 == 120
            and data[word + 2] | 32 == 116
        )
    elif letters == 0 and q < hi and data[q] == 35:
        known = True
        q += 1
    if not known:
        return end
    while q < hi and q - word < 12 and (data[q] == 32 or data[q] == 46 or data[q] == 58):
        q += 1
    digits = digit_run(data, q, hi)
    return q + digits if 1 <= digits <= 6 and not word_at(data, q + digits, hi) else end


@part
def _is_closed_left(data: np.ndarray, p: int, lo: int) -> bool:
    """Whether what is before `p` makes it part of something else: a word, a sum of money, a longer number."""
    if p == lo:
        return False
    c = data[p - 1]
    if word_before(data, p, lo) or c == 43 or c == 36 or c == 64 or c == 92:
        return True
    return (44 <= c <= 47 or c in (41, 58)) and digit_before(data, p - 1, lo)


@part
def _is_closed_right(data: np.ndarray, end: int, hi: int) -> bool:
    """Whether what is at `end` makes the number part of something else."""
    if word_at(data, end, hi) or (end < hi and (data[end] == 64 or data[end] == 37)):
        return True
    width, kind = separator(data, end, hi)
    return width > 0 and kind != SPACE and digit_at(data, end + width, hi)


@part
def phone_end(data: np.ndarray, p: int, lo: int, hi: int, after_phone: bool) -> int:
    """Where the number at `p` (a digit, "+" or "(") ends, or 0. `after_phone`: another one ends just before.
    Reads at most 40 bytes before.
    """
    if _is_closed_left(data, p, lo):
        return 0
    end, digits, value, shape, groups, separators, plus, bracket = _groups(data, p, hi)
    if end == 0 or digits < 7:
        return 0
    verdict = _judge(digits, value, shape, groups, separators, plus, bracket)
    if verdict == _NO:
        return 0
    extended = _extension_end(data, end, hi)
    if extended > end and groups > 1 and digits >= 10:
        verdict = _YES
    if _is_closed_right(data, extended, hi):
        return 0
    if not plus and p > lo:
        c = data[p - 1]
        if c == 32 and digit_before(data, p - 1, lo):
            if bracket:
                verdict = _WITH_CONTEXT  # an issue and its pages: "93 (15) 7436-7439"
            elif groups == 1 or separators & SPACE:
                return 0
        if groups == 1 and (c == 47 or (c == 35 and word_before(data, p - 1, lo))):
            return 0  # the number of a page: "/message/36667828", "topic#25445440"
        if (c == 45 or c == 46 or c == 47 or c == 61) and word_before(data, p - 1, lo):
            verdict = _WITH_CONTEXT
    if separators == DOT and shape != 0x334 and names_a_version(data, p, lo):
        return 0
    if verdict == _WITH_CONTEXT and not (
        after_phone or word_near_before(data, p, lo, PHONE_WORDS, _REACH) or label_after(data, extended, hi)
    ):
        return 0
    return extended
