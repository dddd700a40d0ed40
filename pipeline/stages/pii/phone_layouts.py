"""Which groups of digits are a telephone number: by their layout, with a word near them, with a label."""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import char, group_widths
from pipeline.stages.pii.digit_groups import POWER, Number, is_one_kind, leading_zeros

# What a number needs: a label, a word near it, nothing.
NO, WITH_LABEL, WITH_CONTEXT, YES = range(4)

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
# Companies of Korea have these before four more digits.
_OF_KOREAN_COMPANIES = np.zeros(10_000, np.bool_)
_OF_KOREAN_COMPANIES[[1522, 1533, 1544, 1551, 1566, 1577, 1588, 1599, 1600, 1644, 1661, 1666, 1670, 1688]] = (
    True
)
_OF_KOREAN_COMPANIES[[1800, 1811, 1833, 1855, 1877, 1899]] = True
_IS_COUNTRY_CODE = np.zeros(1000, np.bool_)
_IS_COUNTRY_CODE[[int(code) for code in _COUNTRY_CODES.split()]] = True


@borrowing
def _international(value: int, digits: int, groups: int) -> int:
    """The verdict on `digits` digits, country code first: E.164 has 8 to 15, North America exactly 11."""
    if digits < 8 or digits > 15:
        return NO
    first = value // POWER[digits - 1]
    if first == 0:
        return NO
    if first == 1:
        return YES if digits == 11 and value // POWER[9] % 10 >= 2 else NO
    code_width = 1 if first == 7 else 2
    if code_width == 2 and not _IS_COUNTRY_CODE[value // POWER[digits - 2]]:
        code_width = 3
        if value // POWER[digits - 3] < 100 or not _IS_COUNTRY_CODE[value // POWER[digits - 3]]:
            return NO
    if value // POWER[digits - code_width - 1] % 10 == 0 and digits < 10:
        return NO
    return YES if groups > 1 or digits > 8 else WITH_CONTEXT


@borrowing
def _is_isbn(value: int) -> bool:
    """Whether ten digits are an ISBN-10 by their check digit: English books start with 0."""
    total = 0
    for weight in range(1, 11):
        total += weight * (value % 10)
        value //= 10
    return total % 11 == 0


@borrowing
def is_made_up(value: int, digits: int) -> bool:
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
    """Whether the groups are a date with its year first or last, and perhaps the hour, or two years."""
    first_four, last_four = number.value // POWER[number.digits - 4], number.value % 10000
    if number.widths == group_widths.YEAR_FIRST or number.widths == group_widths.YEAR_FIRST_AND_HOUR:
        return _is_year(first_four)
    if number.widths == group_widths.YEAR_LAST:
        return _is_year(last_four)
    if number.widths == group_widths.YEAR_LAST_AND_HOUR:
        return _is_year(number.value // 100 % 10000)
    if number.widths in group_widths.YEAR_LAST_SHORT:
        return is_one_kind(number.separators) and _is_year(last_four)
    years = number.widths == group_widths.TWO_FOURS and number.separators == char.DASH
    return years and _is_year(first_four) and _is_year(last_four) and first_four <= last_four


@borrowing
def is_north_american(number: Number) -> bool:
    """Whether it is 3-3-4, the area code from 2 on, with or without a country code 1."""
    bracketed = number.widths == group_widths.AMERICAN_IN_TWO and number.brackets
    ten = number.digits == 10 and (number.widths == group_widths.AMERICAN or bracketed)
    eleven = number.digits == 11 and number.widths == group_widths.AMERICAN_WITH_1
    if not ten and not eleven:
        return False
    return number.value // POWER[9] % 10 >= 2 and number.value // POWER[10] <= 1


@borrowing
def has_exchange(number: Number) -> bool:
    """Whether the seven last digits begin as those of North America do, from 2 on."""
    return number.value // POWER[6] % 10 >= 2


@borrowing
def _is_pages_and_year(number: Number) -> bool:
    """Whether it is a citation: "259-264 1970"."""
    is_mixed = number.separators == char.DASH | char.SPACE and not number.brackets
    return is_mixed and _is_year(number.value % POWER[4])


@borrowing
def has_bracketed_code(number: Number) -> bool:
    """Whether an area code in brackets, which is no year, stands before hyphenated groups."""
    if not number.brackets or not number.separators & char.DASH:
        return False
    if number.first_width == 4 and _is_year(number.value // POWER[number.digits - 4]):
        return False
    return number.groups == 3 and 9 <= number.digits <= 11 and 2 <= number.first_width <= 4


@borrowing
def is_russian(number: Number) -> bool:
    """Whether it is "8 (916) 123 45 67" or "8-800-555-35-35": trunk prefix 8 or country code 7."""
    if number.digits != 11 or number.first_width != 1 or number.groups < 4:
        return False
    if number.value // POWER[10] not in (7, 8):
        return False
    hyphened = number.separators == char.DASH and number.widths == group_widths.RUSSIAN
    return number.brackets or (hyphened and number.value // POWER[9] % 10 > 2)


@borrowing
def is_korean(number: Number) -> bool:
    """Whether it is of a company of Korea, or two years."""
    is_two_fours = number.widths == group_widths.TWO_FOURS and number.separators == char.DASH
    return is_two_fours and not number.brackets and _OF_KOREAN_COMPANIES[number.value // POWER[4]]


@borrowing
def _national(number: Number) -> int:
    """The verdict on digits with one leading 0; `NO` leaves them to the general rule."""
    digits, groups, first_width = number.digits, number.groups, number.first_width
    if groups == 1 and (digits == 11 or (digits == 10 and not _is_isbn(number.value))):
        return YES
    if digits < 9 or digits > 13 or first_width < 2 or first_width > 6:
        return NO
    if number.brackets and groups > 1:
        return YES
    ends_in_three = number.widths % 10 == 3
    in_nine = digits == 9 and (ends_in_three or number.widths == group_widths.HYPHENED_IN_NINE)
    in_three = groups == 3 and ends_in_three and number.widths != group_widths.HYPHENED_IN_TEN
    if number.separators == char.DASH and (in_nine or in_three):  # "01-3127-603"
        return WITH_CONTEXT
    if groups > 2 and (digits <= 11 or (groups == 3 and first_width >= 4)):
        dots_mixed = number.separators & char.DOT and number.separators & (char.SPACE | char.DASH)
        return WITH_LABEL if dots_mixed and not number.separators & char.SLASH else YES
    in_two = groups == 2 and 10 <= digits <= 11 and first_width >= 3
    return YES if in_two and number.separators & (char.SPACE | char.DASH) else NO


@borrowing
def _any_layout(number: Number) -> int:
    """The verdict on groups that are no number of a known layout: a label must say that they are one."""
    digits, value = number.digits, number.value
    decimal = number.groups == 2 and number.separators == char.DOT and (number.first_width != 3 or digits < 9)
    quad = number.groups == 4 and number.separators == char.DOT and number.widths != group_widths.FOUR_PAIRS
    whole = number.groups == 1 and _international(value, digits, 1) != YES
    too_many = number.lone_digits > 2 or number.groups > 7 or digits > (12 if whole else 15)
    dotted = number.separators == char.DOT and number.lone_digits > 0  # an OID
    mixed = number.separators & char.SLASH and number.separators & char.DOT
    if decimal or quad or dotted or too_many or mixed:
        return NO
    return WITH_LABEL if digits >= 6 and value % 100_000 != 0 else NO


@borrowing
def _is_usual(number: Number) -> bool:
    """Whether a word near groups without a leading 0 is enough: numbers of things have other layouts."""
    if number.separators == char.DOT and number.widths % 100 == 33:  # "37.527.180"
        return False
    if number.groups == 1:
        return number.digits >= 10
    if number.groups == 2:
        year = number.first_width == 4 and _is_year(number.value // POWER[number.digits - 4])
        return number.widths in group_widths.USUAL_OF_TWO and not (year and number.separators == char.DASH)
    if number.groups == 3:
        of_a_thing = number.widths == group_widths.HYPHENED_OF_THINGS and number.separators == char.DASH
        usual = number.widths in group_widths.USUAL_OF_THREE
        return usual and number.separators != char.SLASH and not of_a_thing
    return True


@borrowing
def judge(number: Number) -> int:
    """Whether the groups are a telephone number by themselves, with context, or not at all."""
    digits, value, groups, first_width = number.digits, number.value, number.groups, number.first_width
    if number.plus:
        decimal = groups == 2 and number.separators == char.DOT and value // POWER[digits - 1] != 1
        return WITH_CONTEXT if decimal else _international(value, digits, groups)
    if _is_date(number):  # "1544-2000"
        return WITH_LABEL if is_korean(number) else NO
    if is_korean(number):
        return WITH_CONTEXT
    zero, two_zeros = leading_zeros(value, digits, 1), leading_zeros(value, digits, 2)
    if leading_zeros(value, digits, 3):
        return NO
    if two_zeros and digits >= 10:
        verdict = _international(value, digits - 2, groups)
        return min(verdict, YES if 3 <= first_width <= 6 and groups > 1 else WITH_CONTEXT)
    # "23125-0": the extension of a switchboard
    switchboard = zero and groups > 2 and value % 10 == 0 and number.separators & char.DASH
    if number.lone_digits > (1 if switchboard and number.widths % 10 == 1 else 0):
        return _any_layout(number)
    if is_north_american(number):
        if _is_pages_and_year(number):
            return WITH_LABEL
        is_sure = number.brackets or number.separators != char.SPACE or has_exchange(number)
        return YES if is_sure else WITH_CONTEXT
    if number.widths == group_widths.SSN:  # of a person, or no telephone number either
        return NO
    if has_bracketed_code(number) or is_russian(number):
        return YES
    if zero and not two_zeros:
        verdict = _national(number)
        if verdict != NO:
            return verdict
    if digits < 7 or digits > 12 or groups > 5 or value % 1000 == 0:
        return _any_layout(number)
    if first_width == 1 and digits != 11 and not number.brackets and (groups < 4 or digits < 9):
        return _any_layout(number)
    last_two = number.widths % 100
    cut_off = groups > 1 and last_two > 22 and last_two % 10 == 2 and not number.brackets  # "874-1483-91"
    if (groups == 2 and number.separators & (char.SLASH | char.DOT) and not zero) or cut_off:
        return _any_layout(number)
    return WITH_CONTEXT if zero or _is_usual(number) else WITH_LABEL


@borrowing
def is_american(number: Number) -> bool:
    return number.widths == group_widths.AMERICAN_LOCAL or is_north_american(number)
