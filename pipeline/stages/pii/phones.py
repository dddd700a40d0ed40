"""Telephone numbers: E.164 with "+" or "00", North American ones, national ones with a trunk 0, local ones
near a word such as "phone".

Without such a word these count:
- "+" and an assigned country code, 8 to 15 digits in all.
- 3-3-4 with hyphens, dots or the area code in brackets. The area code starts with 2-9, and after spaces
  alone, or where spaces stand beside the hyphens, the exchange does too. Letters may touch its end.
- An area code in brackets before hyphenated groups.
- One leading 0 and 9 to 13 digits in three or more groups.
- One leading 0 and 10 or 11 digits, as an area code of at least 3 digits and the rest, or unbroken. Ten
  unbroken digits must be neither an ISBN nor binary.
- Eleven digits as Russia writes them: "8 (916) 123 45 67", "8-800-555-35-35".
- Ten digits with an extension. The extension belongs to the number.

Numbers of 7 to 12 digits in other usual layouts need a word such as "phone" or "fax" within 40 characters
before them, a label right after them, or another telephone number just before them. So do gaps of up to three
bytes (" - ", " / ") and the end of a line inside a number. What else has 6 to 15 digits needs a label
directly before it, such as "Tel.: ": runs of less than ten digits, a country code without "+", groups of
one digit. "Call", "cell" and "office" mean other things too: `phone_words.py` says what they need. Dates,
citations, decimals and the numbers of orders, parts and books never count.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char, group_widths
from pipeline.stages.pii.context import is_one_of, keys, label_after, names_a_version
from pipeline.stages.pii.digit_groups import Number, goes_on_wide, is_one_kind, leading_zeros, read_groups
from pipeline.stages.pii.phone_layouts import (
    NO,
    WITH_CONTEXT,
    WITH_LABEL,
    YES,
    has_bracketed_code,
    has_exchange,
    is_american,
    is_korean,
    is_made_up,
    is_north_american,
    is_russian,
    judge,
)
from pipeline.stages.pii.phone_words import (
    ADDRESSED,
    ASIDE,
    MENTIONED,
    NAMED,
    NEAR,
    named_by,
    noun_follows,
    numbers_other,
    phone_context,
    word_follows,
)
from pipeline.stages.text import equals

_PART_OF_NUMBER = byte.byte_set(b"-./")  # after a digit
_PART_OF_WORD = byte.byte_set(b"+$@\\")
_ENDS_DECIMAL = byte.byte_set(b".])\"'")
_IN_PATH = byte.byte_set(b"-./")
_BEFORE_EXTENSION = byte.byte_set(b" ,;")
_AFTER_EXTENSION = byte.byte_set(b" .:=")
_WORDS_OF_HEX = keys("ab ad ba be ca ce da de ea ed fa fe")
_CHAT, _EXTENSION, _KOREAN_NUMBER = map(byte.text, ("wa.me/", "extension", "번"))


@borrowing
def _extension_end(data: np.ndarray, end: int, hi: int) -> int:
    """Where "x12", "#12", " ext. 12" or " extension 12" behind the number ends; else `end`."""
    word = char.run_end(data, end, min(hi, end + 2), _BEFORE_EXTENSION)
    q = word
    while q < hi and q - word < len(_EXTENSION) and data[q] | byte.CASE == _EXTENSION[q - word]:
        q += 1
    if q == word and q < hi and (data[q] == byte.HASH or data[q] | byte.CASE == byte.X):
        q += 1
    elif q - word not in (len("ext"), len(_EXTENSION)):
        return end
    q = char.run_end(data, q, min(hi, word + 12), _AFTER_EXTENSION)
    digits = char.digit_run(data, q, hi)
    return q + digits if 1 <= digits <= 6 and not char.word_at(data, q + digits, hi) else end


@borrowing
def _slash_end(data: np.ndarray, end: int, hi: int) -> int:
    """Where the last digits of a second number end: "555-3416/3259". `end` if there are none."""
    if end >= hi or data[end] != byte.SLASH:
        return end
    digits = char.digit_run(data, end + 1, hi)
    last = end + 1 + digits
    goes_on = char.separator(data, last, hi) and char.digit_at(data, last + 1, hi)
    return last if 1 <= digits <= 5 and not goes_on and not char.word_at(data, last, hi) else end


@borrowing
def _is_joined_before(data: np.ndarray, p: int) -> bool:
    """Whether what is before `p` makes it part of a word, a sum of money or a longer number."""
    if p == 0:
        return False
    c = data[p - 1]
    if char.word_before(data, p):
        return char.is_digit(c) or not named_by(data, p)
    if _PART_OF_WORD[c] and not char.after_value(data, p):
        is_added = c == byte.PLUS and char.starts_line(data, p - 1)  # a line of a patch
        return not is_added and (c != byte.DOLLAR or byte.ZERO < data[p] <= byte.NINE)
    if not char.digit_before(data, p - 1):
        if c != byte.DOT:
            return False
        return p == 1 or not (char.is_letter(data[p - 2]) or _ENDS_DECIMAL[data[p - 2]])
    if c != byte.CLOSING_BRACKET:
        return _PART_OF_NUMBER[c]
    # "(212)5550187": the area code of this number, unlike "1)5550187"
    return data[char.run_start(data, p - 1, max(1, p - 7), char.DIGITS) - 1] == byte.OPENING_BRACKET


@borrowing
def _after_number(data: np.ndarray, p: int, number: Number, verdict: int) -> int:
    """The verdict on what seems to be a number by itself, where digits and one more byte stand before it."""
    if not char.digit_before(data, p - 1):
        return verdict
    c, zero = data[p - 1], leading_zeros(number.value, number.digits, 1)
    is_uniform = number.groups > 2 and is_one_kind(number.separators)
    if verdict != YES or not (number.brackets or zero or is_uniform):
        is_time = c == byte.COLON and number.first_width == 2  # "12:30 ..."
        is_thousands = c == byte.COMMA and number.first_width == 3  # "10,000 ..."
        if is_time or is_thousands:
            return NO
    width, ends = char.before_space(data, p)
    if width == 0 or ends:
        return verdict
    if number.brackets:  # "93 (15) 7436-7439"
        return WITH_LABEL if number.widths in group_widths.ISSUE_AND_PAGES else verdict
    has_dots = number.separators & char.DOT != 0
    if number.groups > 1 and not number.separators & char.SPACE and not (zero and has_dots):
        return verdict  # "1-569 519-6760"
    is_of_table = has_dots or width == number.first_width
    is_of_list = number.groups == 2 or number.widths in group_widths.PRINTED_IN_LISTS
    return YES if verdict == YES and zero and is_of_list and not is_of_table else NO


@borrowing
def _weakened_by_place(data: np.ndarray, p: int, number: Number, verdict: int) -> int:
    """The verdict where the number is part of a path or a name, or unbroken and the value of a setting."""
    c = data[p - 1]
    if not char.word_before(data, p - 1):
        return verdict
    if _IN_PATH[c]:
        return min(verdict, WITH_LABEL)
    is_value = c == byte.EQUALS or c == byte.UNDERSCORE
    return min(verdict, WITH_CONTEXT) if number.groups == 1 and is_value else verdict


@borrowing
def _is_of_chat(data: np.ndarray, p: int, number: Number) -> bool:
    """Whether it is the number of a link to WhatsApp: "https://wa.me/15551234567"."""
    return number.groups == 1 and number.digits >= 10 and equals(data, p - len(_CHAT), p, _CHAT)


@borrowing
def _is_page(data: np.ndarray, p: int, number: Number) -> bool:
    """Whether unbroken digits number a page or a thing: "/message/36667828", "topic#25445440", "call_123"."""
    c = data[p - 1]
    is_mark = c == byte.HASH or (c == byte.UNDERSCORE and number.digits < 10)
    return number.groups == 1 and (c == byte.SLASH or (is_mark and char.word_before(data, p - 1)))


@borrowing
def _is_hex_byte(data: np.ndarray, i: int, hi: int) -> bool:
    """Whether a byte with a letter, as dumps write it, is at `i`: "7f "."""
    if i < 0 or i + 2 > hi or char.word_at(data, i + 2, hi):
        return False
    first, second = data[i], data[i + 1]
    is_hex = char.HEX[first] and char.HEX[second]
    return is_hex and not (char.is_digit(first) and char.is_digit(second))


@borrowing
def _is_of_dump(data: np.ndarray, i: int, step: int, hi: int) -> bool:
    """Whether a byte of a dump is at `i`. It may be a word, unless another byte stands `step` bytes on."""
    if not _is_hex_byte(data, i, hi):
        return False
    return not is_one_of(data, i, i + 2, _WORDS_OF_HEX) or _is_hex_byte(data, i + step, hi)


@borrowing
def _is_in_dump(data: np.ndarray, p: int, number: Number, end: int, hi: int) -> bool:
    """Whether the pairs of digits are bytes of a dump."""
    ends_in_pairs = number.widths % 1000 == group_widths.THREE_PAIRS
    if number.separators != char.SPACE or not ends_in_pairs:
        return False
    return _is_of_dump(data, p - 3, -3, hi) or (
        end < hi and data[end] == byte.SPACE and _is_of_dump(data, end + 1, 3, hi)
    )


@borrowing
def _is_sum(data: np.ndarray, number: Number, end: int, hi: int) -> bool:
    """Whether two decimals follow a comma: "1 234 567,50"."""
    may_be = number.separators == char.SPACE and not (number.plus or number.brackets)
    return may_be and end < hi and data[end] == byte.COMMA and char.digit_run(data, end + 1, hi) == 2


@borrowing
def _is_joined_after(data: np.ndarray, p: int, end: int, hi: int) -> bool:
    """Whether what is at `end` makes the number at `p` part of something else, such as a time."""
    if end < hi and data[end] == byte.COLON:
        colon = char.run_end(data, end + 1, min(hi, end + 6), char.HEX)
        joins = colon < hi and data[colon] == byte.COLON
    else:
        joins = end < hi and data[end] == byte.PERCENT
    if joins:
        return not char.repeats(data, p, end, hi)
    return char.is_continued(data, p, end, hi, char.DASH | char.DOT | char.SLASH)


@borrowing
def _is_said(
    data: np.ndarray, p: int, number: Number, end: int, hi: int, verdict: int, after_phone: bool
) -> bool:
    """Whether words, or a list, say that a number with this verdict is a telephone number."""
    in_list = after_phone and not (p > 0 and data[p - 1] == byte.SPACE and char.after_value(data, p))
    if in_list and (number.digits >= 7 or not word_follows(data, end, hi)):
        return True
    if is_korean(number) and equals(data, end, hi, _KOREAN_NUMBER):  # "1544-2000번"
        return True
    context, is_unbroken = phone_context(data, p), number.groups == 1
    is_round = number.value % 1000 == 0 and not is_american(number)
    if number.digits == 6 or is_round:
        return context == NAMED
    if is_unbroken and context < NAMED and noun_follows(data, end, hi):
        return False
    if context < NEAR and label_after(data, end, hi):
        context = NEAR
    if is_unbroken and context == ASIDE:
        return True
    if verdict == WITH_LABEL:
        return context >= ADDRESSED
    is_national = leading_zeros(number.value, number.digits, 1) and number.digits > 8
    if is_national or is_american(number):  # little else has these layouts
        return context >= MENTIONED
    return context >= NEAR


@borrowing
def _verdict_by_layout(data: np.ndarray, p: int, hi: int, number: Number) -> int:
    """The verdict on the groups at `p`, by their layout and the brackets and wide gaps in it."""
    verdict = judge(number)
    if number.half_open:
        if p > 0 and data[p - 1] == byte.OPENING_BRACKET:  # read with its bracket before
            return NO
        is_code = leading_zeros(number.value, number.digits, 1) and number.separators == char.DASH
        in_square = p > 0 and data[p - 1] == byte.OPENING_SQUARE and is_north_american(number)
        if not is_code and not in_square:  # neither "02)722-2919" nor "[504] 891-8259"
            verdict = min(verdict, WITH_CONTEXT)
    if number.wide and not number.plus and not number.brackets:
        is_wrapped = number.wide == 2
        if is_wrapped and data[p] != byte.ZERO and not is_american(number):
            return NO
        is_hyphened = is_north_american(number) and number.separators & char.DASH and has_exchange(number)
        if not is_hyphened or char.is_calculated(data, p, number.end, hi):  # "713 - 555 - 3989"
            verdict = min(verdict, WITH_CONTEXT)
    return verdict


@borrowing
def _is_something_else(data: np.ndarray, p: int, number: Number, end: int, hi: int) -> bool:
    """Whether the digits are made up, a page, bytes of a dump, a sum, a version or the number of a thing."""
    if not number.plus and (is_made_up(number.value, number.digits) or (p > 0 and _is_page(data, p, number))):
        return True
    if _is_in_dump(data, p, number, end, hi) or _is_sum(data, number, end, hi):
        return True
    if number.separators == char.DOT and number.widths != group_widths.AMERICAN and names_a_version(data, p):
        return True
    coded = number.plus or is_north_american(number) or has_bracketed_code(number) or is_russian(number)
    return not coded and p > 0 and numbers_other(data, p, number.groups == 1)


@borrowing
def _end_of(data: np.ndarray, p: int, hi: int, number: Number, after_phone: bool) -> int:
    """Where the telephone number ends that these groups at `p` are, or 0."""
    if number.end == 0 or number.digits < 6:
        return 0
    if p > len(_CHAT) and _is_of_chat(data, p, number):
        return number.end if not char.word_at(data, number.end, hi) else 0
    verdict = _verdict_by_layout(data, p, hi, number)
    if verdict == NO:
        return 0
    end = _extension_end(data, number.end, hi)
    if end > number.end and _is_joined_after(data, p, end, hi):
        end = number.end
    if end > number.end and number.groups > 1 and number.digits >= 10:
        verdict = YES
    end = max(end, _slash_end(data, number.end, hi))
    letters_follow = end == number.end and char.word_at(data, end, hi)
    may_touch_letters = number.groups > 1 and is_north_american(number)
    if not (letters_follow and may_touch_letters) and _is_joined_after(data, p, end, hi):
        return 0
    if not number.plus and p > 0:
        verdict = _weakened_by_place(data, p, number, _after_number(data, p, number, verdict))
    if verdict == NO or _is_something_else(data, p, number, end, hi):
        return 0
    return end if verdict == YES or _is_said(data, p, number, end, hi, verdict, after_phone) else 0


@borrowing
def brazilian_end(data: np.ndarray, p: int, hi: int) -> int:
    """Where the number whose 0 is at `p` ends, "0xx11 3456-7890" with the code of any carrier, or 0."""
    code = p + 3
    if code + 10 > hi or data[p] != byte.ZERO or data[p + 1] != data[p + 2]:
        return 0
    if not (data[p + 1] | byte.CASE == byte.X or data[p + 1] == byte.ASTERISK):
        return 0
    i = code + 2
    i += data[i] == byte.CLOSING_BRACKET
    i += char.separator(data, i, hi) > 0
    first = char.digit_run(data, i, hi)
    end = i + first
    if first == 4 or first == 5:
        end += char.separator(data, end, hi) > 0
        last = char.digit_run(data, end, hi)
        first, end = first + last, end + last
    whole = char.digit_run(data, code, code + 2) == 2 and 8 <= first <= 9
    return end if whole and not char.word_at(data, end, hi) else 0


@borrowing
def phone_end(data: np.ndarray, p: int, hi: int, after_phone: bool) -> int:
    """Where the number at `p` (a digit, "+" or "(") ends, or 0. `after_phone`: another one ends just before.

    Reads at most 40 characters before `p`.
    """
    if _is_joined_before(data, p):
        return 0
    wide, tried = False, False
    while True:  # one call of each reader: compiled, each has the size of all that it calls
        number = read_groups(data, p, hi, wide)
        if number.end == 0 and not wide:
            return 0
        if not tried and goes_on_wide(data, number.end, hi):
            wide, tried = True, True
            continue
        end = _end_of(data, p, hi, number, after_phone)
        if end > 0 or not wide:
            return end
        wide = False
