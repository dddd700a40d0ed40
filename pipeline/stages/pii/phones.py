"""Telephone numbers: E.164 with "+" or "00", North American ones, national ones with a trunk 0, local ones
near a word such as "phone".

Without such a word these count:
- "+" and an assigned country code, 8 to 15 digits in all.
- 3-3-4 with hyphens, dots or the area code in brackets. The area code starts with 2-9, and after spaces alone
  the exchange does too.
- An area code in brackets before hyphenated groups.
- One leading 0 and 9 to 13 digits in three or more groups.
- One leading 0 and 10 or 11 digits, as an area code of at least 3 digits and the rest, or unbroken. Ten
  unbroken digits must be neither an ISBN nor binary.
- Ten digits with an extension. The extension belongs to the number.

Everything else of 7 to 12 digits (other unbroken runs, two groups, numbers without a 0) needs one of three: a
word such as "phone", "call" or "fax" within 40 bytes before it, a label right after it, or another telephone
number just before it. Dates, round numbers and decimals never count.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte
from pipeline.stages.pii.characters import (
    DASH,
    DOT,
    FLAGS,
    HEX,
    SLASH,
    SPACE,
    after_value,
    before_space,
    digit_before,
    digit_run,
    is_alnum,
    is_continued,
    is_digit,
    repeats,
    word_at,
    word_before,
)
from pipeline.stages.pii.context import PHONE_WORDS, label_after, names_a_version, word_near_before
from pipeline.stages.pii.digit_groups import POWER, Number, leading_zeros, read_groups

_REACH = 40  # bytes
_NO, _WITH_CONTEXT, _YES = 0, 1, 2

# ITU-T E.164 country codes in use; 1 and 7 are whole zones.
_COUNTRY_CODES = (
    "20 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 237 238 239 "
    "240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 260 261 262 263 264 265 266 "
    "267 268 269 27 290 291 297 298 299 30 31 32 33 34 350 351 352 353 354 355 356 357 358 359 36 370 371 "
    "372 373 374 375 376 377 378 380 381 382 383 385 386 387 389 39 40 41 420 421 423 43 44 45 46 47 48 49 "
    "500 501 502 503 504 505 506 507 508 509 51 52 53 54 55 56 57 58 590 591 592 593 594 595 596 597 598 599 "
    "60 61 62 63 64 65 66 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 688 689 690 691 "
    "692 7 800 808 81 82 84 850 852 853 855 856 86 870 878 880 881 882 883 886 888 90 91 92 93 94 95 960 961 "
    "962 963 964 965 966 967 968 970 971 972 973 974 975 976 977 979 98 992 993 994 995 996 998 1"
)
_IS_COUNTRY_CODE = np.zeros(1000, np.bool_)
_IS_COUNTRY_CODE[[int(code) for code in _COUNTRY_CODES.split()]] = True

_PART_OF_NUMBER = byte.byte_set(b"-./")  # after a digit
_PART_OF_WORD = byte.byte_set(b"+$@\\")
_BEFORE_DECIMAL = byte.byte_set(b" ,(-+=")
_IN_PATH = byte.byte_set(b"-./")
_BEFORE_EXTENSION = byte.byte_set(b" ,")
_AFTER_EXT = byte.byte_set(b" .:")


@borrowing
def _international(value: int, digits: int, groups: int) -> int:
    """The verdict on `digits` digits, country code first: E.164 has 8 to 15, North America exactly 11."""
    if digits < 8 or digits > 15:
        return _NO
    first = value // POWER[digits - 1]
    if first == 0:
        return _NO
    if first == 1:
        return _YES if digits == 11 and value // POWER[9] % 10 >= 2 else _NO
    code_width = 1 if first == 7 else 2
    if code_width == 2 and not _IS_COUNTRY_CODE[value // POWER[digits - 2]]:
        code_width = 3
        if value // POWER[digits - 3] < 100 or not _IS_COUNTRY_CODE[value // POWER[digits - 3]]:
            return _NO
    if value // POWER[digits - code_width - 1] % 10 == 0 and digits < 10:
        return _NO
    return _YES if groups > 1 or digits > 8 else _WITH_CONTEXT


@borrowing
def _is_isbn(value: int) -> bool:
    """Whether ten digits are an ISBN-10 by their check digit: English books start with 0."""
    total = 0
    for weight in range(1, 11):
        total += weight * (value % 10)
        value //= 10
    return total % 11 == 0


@borrowing
def _is_made_up(value: int, digits: int) -> bool:
    """Whether the digits are all 0 and 1, or count from 0: "0123 0123456"."""
    largest, steps = 0, 0
    for i in range(digits):
        c, before = value // POWER[i] % 10, value // POWER[i + 1] % 10
        largest = max(largest, c)
        steps += i < digits - 1 and c == before + 1
    return largest < 2 or (leading_zeros(value, digits, 1) and steps >= digits - 2)


@borrowing
def _is_year(value: int) -> bool:
    return 1000 <= value <= 2199


@borrowing
def _is_date(number: Number) -> bool:
    """Whether the groups are a date with its year first or last, and perhaps the hour, or two years with a
    dash between them.
    """
    first_four, last_four = number.value // POWER[number.digits - 4], number.value % 10000
    if number.widths == 422 or number.widths == 4222:
        return _is_year(first_four)
    if number.widths == 224:
        return _is_year(last_four)
    if number.widths == 2242:
        return _is_year(number.value // 100 % 10000)
    return number.widths == 44 and number.separators == DASH and _is_year(first_four) and _is_year(last_four)


@borrowing
def _is_north_american(number: Number) -> bool:
    """Whether it is 3-3-4, the area code from 2 on, with or without a country code 1."""
    ten = number.digits == 10 and (number.widths == 334 or (number.widths == 37 and number.brackets))
    if not ten and not (number.digits == 11 and number.widths == 1334):
        return False
    return number.value // POWER[9] % 10 >= 2 and number.value // POWER[10] <= 1


@borrowing
def _has_bracketed_code(number: Number) -> bool:
    """Whether an area code in brackets, which is no year, stands before hyphenated groups."""
    if not number.brackets or not number.separators & DASH:
        return False
    if number.first_width == 4 and _is_year(number.value // POWER[number.digits - 4]):
        return False
    if number.groups == 3 and 9 <= number.digits <= 11 and 2 <= number.first_width <= 4:
        return True
    # Russia: trunk prefix 8 or country code 7
    is_russian = number.groups >= 4 and number.digits == 11 and number.first_width == 1
    return is_russian and number.value // POWER[10] in (7, 8)


@borrowing
def _national(number: Number) -> int:
    """The verdict on digits with one leading 0; `_NO` leaves them to the general rule."""
    digits, groups, first_width = number.digits, number.groups, number.first_width
    if groups == 1 and (digits == 11 or (digits == 10 and not _is_isbn(number.value))):
        return _YES
    if digits < 9 or digits > 13 or first_width < 2 or first_width > 5:
        return _NO
    if number.brackets and groups > 1:
        return _YES
    if groups > 2 and (digits <= 11 or (groups == 3 and first_width >= 4)):
        dots_mixed = number.separators & DOT and number.separators & (SPACE | DASH)
        return _WITH_CONTEXT if dots_mixed and not number.separators & SLASH else _YES
    if groups == 2 and 10 <= digits <= 11 and first_width >= 3 and number.separators & (SPACE | DASH):
        return _YES
    return _NO


@borrowing
def _judge(number: Number) -> int:
    """Whether the groups are a telephone number by themselves, with context, or not at all."""
    digits, value, groups, first_width = number.digits, number.value, number.groups, number.first_width
    if number.plus:
        decimal = groups == 2 and number.separators == DOT and value // POWER[digits - 1] != 1
        return _WITH_CONTEXT if decimal else _international(value, digits, groups)
    if number.lone_digit or _is_date(number):
        return _NO
    zero, two_zeros = leading_zeros(value, digits, 1), leading_zeros(value, digits, 2)
    if two_zeros and digits >= 10:
        verdict = _NO if leading_zeros(value, digits, 3) else _international(value, digits - 2, groups)
        return min(verdict, _YES if first_width >= 3 and groups > 1 else _WITH_CONTEXT)
    if _is_north_american(number):
        alone = number.brackets or number.separators != SPACE or value // POWER[6] % 10 >= 2
        return _YES if alone else _WITH_CONTEXT
    if _has_bracketed_code(number):
        return _YES
    if zero and not two_zeros:
        verdict = _national(number)
        if verdict != _NO:
            return verdict
    if digits < 7 or digits > 12 or groups > 5 or value % 1000 == 0:
        return _NO
    if first_width == 1 and digits != 11 and not number.brackets and (groups < 4 or digits < 9):
        return _NO
    if groups == 2 and number.separators & (SLASH | DOT) and not zero:
        return _NO
    return _WITH_CONTEXT


@borrowing
def _extension_end(data: np.ndarray, end: int, hi: int) -> int:
    """Where "x12", "#12", " ext. 12" or " extension 12" after the number at `end` ends; `end` if there is
    none.
    """
    q = end
    while q < hi and q - end < 2 and _BEFORE_EXTENSION[data[q]]:
        q += 1
    word = q
    while q < hi and q - word < 9 and is_alnum(data[q]) and not is_digit(data[q]):
        q += 1
    letters = q - word
    if letters == 0:
        if q == hi or data[q] != byte.HASH:
            return end
        q += 1
    elif letters == 1:
        if data[word] | byte.CASE != byte.X:
            return end
    elif (
        (letters != 3 and letters != 9)
        or data[word] | byte.CASE != byte.E
        or data[word + 1] | byte.CASE != byte.X
        or data[word + 2] | byte.CASE != byte.T
    ):
        return end
    while q < hi and q - word < 12 and _AFTER_EXT[data[q]]:
        q += 1
    digits = digit_run(data, q, hi)
    return q + digits if 1 <= digits <= 6 and not word_at(data, q + digits, hi) else end


@borrowing
def _is_joined_before(data: np.ndarray, p: int) -> bool:
    """Whether what is before `p` makes it part of a word, a sum of money or a longer number."""
    if p == 0:
        return False
    c = data[p - 1]
    if word_before(data, p) or (_PART_OF_WORD[c] and not after_value(data, p)):
        return True
    if not digit_before(data, p - 1):
        return c == byte.DOT and p > 1 and _BEFORE_DECIMAL[data[p - 2]]
    if c != byte.CLOSING_BRACKET:
        return _PART_OF_NUMBER[c]
    opening = p - 2  # "(212)5550187": the area code of this number, unlike "1)5550187"
    while opening > 0 and p - opening < 8 and is_digit(data[opening]):
        opening -= 1
    return data[opening] == byte.OPENING_BRACKET


@borrowing
def _after_number(data: np.ndarray, p: int, number: Number, verdict: int) -> int:
    """The verdict on what seems to be a number by itself, where digits and one more byte stand before it."""
    if not digit_before(data, p - 1):
        return verdict
    zero = leading_zeros(number.value, number.digits, 1)
    c = data[p - 1]
    is_uniform = number.groups > 2 and number.separators & (number.separators - 1) == 0
    if verdict != _YES or not (number.brackets or zero or is_uniform):
        minutes = c == byte.COLON and number.first_width == 2
        if minutes or (c == byte.COMMA and number.first_width == 3):  # "12:30 ...", "10,000 ..."
            return _NO
    width, ends = before_space(data, p)
    if width == 0 or ends:
        return verdict
    if number.brackets:  # an issue and its pages: "93 (15) 7436-7439"
        pages = number.widths == 244 and number.value // POWER[4] % POWER[4] < number.value % POWER[4]
        return _WITH_CONTEXT if pages else verdict
    if number.groups > 1 and not number.separators & SPACE and not (zero and number.separators & DOT):
        return verdict
    is_printed = number.groups == 2 or number.widths in (22222, 344, 434)
    is_table = number.separators & DOT or width == number.first_width
    return verdict if verdict == _YES and zero and is_printed and not is_table else _NO


@borrowing
def _is_weakened(data: np.ndarray, p: int, number: Number) -> bool:
    """Whether the number is part of a path or a name, or unbroken and the value of a setting."""
    c = data[p - 1]
    is_one = number.groups == 1 and (c == byte.EQUALS or c == byte.UNDERSCORE)
    return (_IN_PATH[c] or is_one) and word_before(data, p - 1)


@borrowing
def _is_page(data: np.ndarray, p: int, number: Number) -> bool:
    """Whether unbroken digits number a page or a thing: "/message/36667828", "topic#25445440", "call_123"."""
    c = data[p - 1]
    in_word = (c == byte.HASH or (c == byte.UNDERSCORE and number.digits < 10)) and word_before(data, p - 1)
    return number.groups == 1 and (c == byte.SLASH or in_word)


@borrowing
def _is_joined_after(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether what is at `end` makes the number at `p` part of something else, such as a time."""
    if end < hi and data[end] == byte.COLON:
        colon = end + 1
        while colon < hi and colon - end < 6 and FLAGS[data[colon]] & HEX:
            colon += 1
        if colon < hi and data[colon] == byte.COLON:
            return not repeats(data, p, end, hi)
    if end < hi and data[end] == byte.PERCENT:
        return not repeats(data, p, end, hi)
    return is_continued(data, p, end, hi, DASH | DOT | SLASH)


@borrowing
def phone_end(data: np.ndarray, p: int, hi: int, after_phone: bool) -> int:
    """Where the number at `p` (a digit, "+" or "(") ends, or 0. `after_phone`: another one ends just before.

    Reads at most 40 bytes before `p`.
    """
    if _is_joined_before(data, p):
        return 0
    number = read_groups(data, p, hi)
    if number.end == 0 or number.digits < 7:
        return 0
    verdict = _judge(number)
    if verdict == _NO:
        return 0
    end = _extension_end(data, number.end, hi)
    if end > number.end and _is_joined_after(data, p, end, hi):
        end = number.end
    if end > number.end and number.groups > 1 and number.digits >= 10:
        verdict = _YES
    if _is_joined_after(data, p, end, hi):
        return 0
    if not number.plus and _is_made_up(number.value, number.digits):
        return 0
    if not number.plus and p > 0:
        verdict = _after_number(data, p, number, verdict)
        if verdict == _NO or _is_page(data, p, number):
            return 0
        if _is_weakened(data, p, number):
            verdict = min(verdict, _WITH_CONTEXT)
    if number.separators == DOT and number.widths != 334 and names_a_version(data, p):
        return 0
    in_list = after_phone and not (p > 0 and data[p - 1] == byte.SPACE and after_value(data, p))
    if verdict == _WITH_CONTEXT and not (
        in_list or word_near_before(data, p, PHONE_WORDS, _REACH) or label_after(data, end, hi)
    ):
        return 0
    return end
