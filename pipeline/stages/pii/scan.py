"""One pass over the bytes of a batch: rare bytes trigger the matchers, all others are skipped."""

from string import ascii_letters

import numpy as np

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.cards import card_end
from pipeline.stages.pii.credentials import secret_at, secret_at_colon, secret_at_equals
from pipeline.stages.pii.emails import email_after, email_at
from pipeline.stages.pii.ibans import iban_at
from pipeline.stages.pii.ip_addresses import ipv4_end, ipv6_at
from pipeline.stages.pii.kinds import (
    ANY_IP,
    CREDIT_CARD,
    DOCUMENT,
    EMAIL,
    END,
    IBAN,
    IPV4,
    IPV6,
    PATTERN,
    PHONE,
    SECRET,
    SSN,
    START,
)
from pipeline.stages.pii.named_secrets import named_secret_at
from pipeline.stages.pii.phones import brazilian_end, phone_end
from pipeline.stages.pii.spelled_emails import announced_email_at, bracketed_email_at, shared_email_at
from pipeline.stages.pii.spoken_secrets import spoken_secret_at
from pipeline.stages.pii.ssns import ssn_end
from pipeline.stages.pii.tokens import TRIGGERS, token_around

_SKIP, _ON_DIGIT, _ON_AT, _ON_COLON, _ON_OPENING, _ON_EQUALS, _ON_SECRET, _ON_BRACKET = range(8)
_LIST_GAP = 8  # most bytes between two numbers of a list
_WORD_REACH = 384  # bytes; no matcher reads farther past its trigger without a space
_NUMBER_REACH = 80
# What stands behind a digit inside of a password
_CONTINUES = byte.byte_set(ascii_letters.encode() + b"!#$%^&*?~@_")
_IN_WORD = char.PRINTED & ~byte.byte_set(b"]")
_IN_NUMBER = byte.byte_set(b"0123456789 +-./()\t\r\n>|#*" + bytes([byte.LONG_DASH, byte.RAISED_DOT]))


def _actions() -> np.ndarray:
    actions = np.zeros(256, np.uint8)
    for characters, action in (
        (b"0123456789", _ON_DIGIT),
        (b"@", _ON_AT),
        (b":", _ON_COLON),
        (b"+(", _ON_OPENING),
        (b"=", _ON_EQUALS),
        (TRIGGERS, _ON_SECRET),
        (b"[{<", _ON_BRACKET),
    ):
        actions[list(characters)] = action
    return actions


_ACTIONS = _actions()


@borrowing
def _number(
    data: np.ndarray, p: int, digits: int, hi: int, wanted: np.ndarray, after: int
) -> tuple[int, int, int]:
    """(start, end, pattern) of the value that the `digits` digits at `p` belong to; end is 0 if none.

    `after`: the pattern of the value just before, or -1.
    """
    touches = char.word_before(data, p)
    if touches and wanted[SECRET]:
        start, end = token_around(data, p, hi)
        if end > 0:
            return start, end, SECRET
    if wanted[SECRET] and (touches or (p + digits < hi and _CONTINUES[data[p + digits]])):
        start, end = spoken_secret_at(data, p, hi)
        if end > 0:
            return start, end, SECRET
    if (
        wanted[IBAN]
        and digits >= 2
        and (touches or (p > 2 and data[p - 1] == byte.SPACE and char.is_upper(data[p - 2])))
    ):
        start, end = iban_at(data, p, hi)
        if end > 0:
            return start, end, IBAN
    if wanted[IPV4] and digits <= 3 and p + digits < hi and data[p + digits] == byte.DOT:
        end = ipv4_end(data, p, hi, wanted[ANY_IP])
        if end > 0:
            return p, end, IPV4
    if wanted[CREDIT_CARD] and (digits == 4 or digits == 8 or 12 <= digits <= 19):
        end = card_end(data, p, digits, hi)
        if end > 0:
            return p, end, CREDIT_CARD
    if wanted[SSN] and (digits == 3 or digits == 9):
        end = ssn_end(data, p, digits, hi, after == SSN)
        if end > 0:
            return p, end, SSN
    if wanted[PHONE] and digits == 1 and not touches:
        end = brazilian_end(data, p, hi)
        if end > 0:
            return p - (p > 0 and data[p - 1] == byte.OPENING_BRACKET), end, PHONE
    if wanted[PHONE] and digits <= 17:
        return p, phone_end(data, p, hi, after == PHONE), PHONE
    return 0, 0, 0


@borrowing
def _value(text: np.ndarray, i: int, hi: int, wanted: np.ndarray, after: int) -> tuple[int, int, int, int]:
    """(start, end, pattern, step) of the value that the trigger at `i` belongs to. If there is none, `end` is
    0 and the search goes on after `step` bytes.
    """
    action = _ACTIONS[text[i]]
    if action == _ON_DIGIT:
        digits = char.digit_run(text, i, hi)
        start, end, pattern = _number(text, i, digits, hi, wanted, after)
        if end > 0 and wanted[EMAIL]:
            first, last = email_after(text, end, hi)
            if last > 0 and first <= start:  # the number is part of an address
                start, end, pattern = first, last, EMAIL
        return start, end, pattern, digits
    start, end, pattern = 0, 0, SECRET
    if action == _ON_SECRET:
        if wanted[SECRET]:
            start, end = secret_at(text, i, hi)
    elif action == _ON_AT:
        if wanted[EMAIL]:
            pattern = EMAIL
            start, end = email_at(text, i, hi)
            if end == 0:
                start, end = shared_email_at(text, i, hi)
    elif action == _ON_EQUALS:
        if wanted[SECRET]:
            start, end = secret_at_equals(text, i, hi)
            if end == 0:
                start, end = named_secret_at(text, i, hi)
    elif action == _ON_COLON:
        if wanted[SECRET]:
            start, end = secret_at_colon(text, i, hi)
            if end == 0:
                start, end = named_secret_at(text, i, hi)
        if end == 0 and wanted[IPV6]:
            pattern = IPV6
            start, end = ipv6_at(text, i, hi, wanted[ANY_IP])
        if end == 0 and wanted[EMAIL]:
            pattern = EMAIL
            start, end = announced_email_at(text, i, hi)
    else:
        if wanted[EMAIL]:
            pattern = EMAIL
            start, end = bracketed_email_at(text, i, hi)
        is_dialled = action == _ON_OPENING and i + 7 < hi and not end
        if is_dialled and wanted[PHONE] and (char.is_digit(text[i + 1]) or text[i + 1] == byte.PLUS):
            start, pattern = i, PHONE
            end = phone_end(text, i, hi, after == PHONE)
    return start, end, pattern, 1


@borrowing
def _pattern_before(spans: np.ndarray, first: int, count: int, i: int) -> int:
    """The pattern of the value of a list that ends just before `i`, or -1."""
    k = count - 1
    while k >= first and spans[k, START] >= i:
        k -= 1
    return spans[k, PATTERN] if k >= first and i - spans[k, END] <= _LIST_GAP else -1


@borrowing
def _next_trigger(text: np.ndarray, i: int, size: int) -> np.int64:
    """The first byte from `i` on at which a search begins, else `size`."""
    at, end = np.uint64(i), np.uint64(size)  # of a signed index numba checks the sign
    while at < end and _ACTIONS[text[at]] == _SKIP:
        at += np.uint64(1)
    return np.int64(at)


@borrowing
def _insert(
    spans: np.ndarray, first: int, count: int, document: int, pattern: int, start: int, end: int
) -> None:
    """Writes a span among those from `first` to `count`, in the order of the text."""
    k = count
    while k > first and spans[k - 1, START] > start:
        for column in range(4):
            spans[k, column] = spans[k - 1, column]
        k -= 1
    spans[k, DOCUMENT], spans[k, PATTERN], spans[k, START], spans[k, END] = document, pattern, start, end


@borrowing
def _joined_from(text: np.ndarray, start: int) -> int:
    """Where the text begins that a matcher may read together with the value at `start`."""
    i = char.run_start(text, start, start - _WORD_REACH, _IN_WORD)
    return char.run_start(text, i, i - _NUMBER_REACH, _IN_NUMBER)


@borrowing
def _mask(text: np.ndarray, start: int, end: int) -> None:
    """Overwrites `start:end` with what looks to all matchers like a placeholder."""
    for i in range(start + 1, end):
        text[i] = byte.CLOSING_SQUARE
    text[start] = byte.OPENING_SQUARE


@kernel
def find_spans(texts: np.ndarray, offsets: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows of (document, pattern, start, end), ordered and disjoint, in bytes of `texts`.

    Overwrites each value with brackets, so that its neighbors see what they will see in the result.
    What stands directly before the value is then read again: the value may have seemed to continue it.
    """
    spans = np.empty((1024, 4), np.int64)
    count = 0
    for document in range(len(offsets) - 1):
        base, size = offsets[document], offsets[document + 1] - offsets[document]
        text = texts[base : base + size]
        first = count
        i = 0
        while True:
            i = _next_trigger(text, i, size)
            if i == size:
                break
            after = _pattern_before(spans, first, count, base + i)
            start, end, pattern, step = _value(text, i, size, wanted, after)
            if end == 0:
                i += step
                continue
            if count == len(spans):
                spans = np.concatenate((spans, np.empty_like(spans)))
            _insert(spans, first, count, document, pattern, base + start, base + end)
            count += 1
            _mask(text, start, end)
            before = _joined_from(text, start)
            i = before if before < start else end
    return spans[:count].copy()
