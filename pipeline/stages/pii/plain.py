"""What the matchers read: the text with odd characters as the ASCII that they stand for.

Typesetting, copying and encoding write "@" as a full-width character, `%40`, `&#64;` or a backslash with
`u0040`, put dashes and spaces of many widths into numbers, and break words at characters without width. Here
they become "@", "-", " " and nothing, so that a matcher knows one form of each. Where a value lies in the
plain text says where it lies in the text as it was.
"""

import unicodedata
from dataclasses import dataclass
from functools import cache
from string import ascii_letters

import numpy as np

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import key, keys
from pipeline.stages.pii.kinds import DOCUMENT, END, PATTERN, START
from pipeline.stages.pii.replaced import replaced
from pipeline.stages.text import decode

_CODES = 0x10000  # odd characters, and those that four hexadecimal digits write
_BLOCK = 32  # bytes that are passed over at once
_MAY_BE_ODD = byte.byte_set(b"%&+\\\xc2\xef" + bytes(range(0xD8, 0xE4)))
# Of all scripts before Han: Arabic, Persian, those of India, Thai, Tibetan, Burmese, Khmer and others
_DIGITS = {code: unicodedata.decimal(chr(code), -1) for code in range(0x80, 0x3000)}
_WIDE = range(0xFF01, 0xFF5F)  # "!" to "~"
_WIDE_COLON = 0xFF1A  # Chinese puts it before a value, which it is no part of
_SPACES = (0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_HYPHENS = (0x2010, 0x2011, 0x2212, 0xFE63)
# They lengthen a vowel in Japanese and Korean, or draw lines; between digits they are hyphens.
_HYPHENS_OF_NUMBERS = (0x2500, 0x2501, 0x30FC, 0x3161)
_LONG_DASHES = range(0x2012, 0x2016)
_RAISED_DOTS = (0xB7, 0x2022, 0x2219, 0x22C5)
_WITHOUT_WIDTH = (0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)

_BEGINS_NUMBER = byte.byte_set(b"0123456789(%")
_PERCENT_ENCODED = byte.byte_set(b" '@+():")
_IN_GROUP, _LONGEST_GROUP = char.UPPER | char.DIGITS, 12
_PLUS_REACH = 48  # bytes; how far before and after a "+" its query is read
_IN_PARAMETER = byte.byte_set(b"0123456789%+-._()" + ascii_letters.encode())
_LETTER_ESCAPES = np.zeros(256, np.int64)
_LETTER_ESCAPES[list(b"nrt_@")] = list(b"\n\r\t_@")
_ENTITIES = (("commat", 0x40), ("nbsp", 0xA0), ("shy", 0xAD), ("ndash", 0x2013), ("mdash", 0x2014))
_ENTITY_KEYS = np.array([keys(name)[0] for name, _ in _ENTITIES])
_ENTITY_CODES = np.array([code for _, code in _ENTITIES])


@dataclass(frozen=True)
class PlainText:
    data: np.ndarray
    offsets: np.ndarray
    edits: np.ndarray  # rows of (document, code point, start, end), in bytes of the text as it was

    @classmethod
    def of(cls, data: np.ndarray, offsets: np.ndarray) -> "PlainText":
        is_odd, joined, starts = _characters()
        edits = _odd_characters(data, offsets, is_odd)
        texts, ends = replaced(data, offsets, edits, joined, starts)
        return cls(texts, ends, edits)

    def original(self, spans: np.ndarray) -> np.ndarray:
        """The spans, which lie in `data`, as they lie in the text as it was."""
        if len(self.edits) == 0:
            return spans
        _, _, starts = _characters()
        codes = self.edits[:, PATTERN]
        lost = np.cumsum(self.edits[:, END] - self.edits[:, START] - (starts[codes + 1] - starts[codes]))
        ends = self.edits[:, END] - lost  # of the edits, in `data`
        begins = self.edits[:, START] - np.concatenate([[0], lost[:-1]])
        lost = np.concatenate([[0], lost])
        spans = spans.copy()
        spans[:, START] += lost[np.searchsorted(ends, spans[:, START], side="right")]
        # an edit that leaves nothing ends where the value does: it lies behind it
        inside = np.searchsorted(begins, spans[:, END], side="left")
        spans[:, END] += lost[inside]
        return spans


@cache
def _characters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether a code point is odd; and what is read for each, as bytes in a row and their starts."""
    plain = {code: chr(code - _WIDE.start + ord("!")).encode() for code in _WIDE}
    plain |= {code: str(digit).encode() for code, digit in _DIGITS.items() if digit >= 0}
    plain |= dict.fromkeys((*_SPACES, _WIDE_COLON), b" ")
    plain |= dict.fromkeys((*_HYPHENS, *_HYPHENS_OF_NUMBERS), b"-")
    plain |= dict.fromkeys(_LONG_DASHES, bytes([byte.LONG_DASH]))
    plain |= dict.fromkeys(_RAISED_DOTS, bytes([byte.RAISED_DOT]))
    plain |= dict.fromkeys(_WITHOUT_WIDTH, b"")
    written = [plain.get(code, chr(code).encode("utf-8", "surrogatepass")) for code in range(_CODES)]
    is_odd = np.zeros(_CODES, np.bool_)
    is_odd[list(plain)] = True
    return is_odd, *byte.joined(written)


@borrowing
def _entity(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(code point, end) of the character reference of HTML whose "&" is at `i`; end is 0 if there is none."""
    if i + 3 < hi and data[i + 1] == byte.HASH:
        is_hex = data[i + 2] | byte.CASE == byte.X
        start = i + 3 if is_hex else i + 2
        code, end = char.number_at(data, start, hi, 6, 16 if is_hex else 10)
        is_one = start < end < hi and data[end] == byte.SEMICOLON and code < _CODES
        return (code, end + 1) if is_one else (0, 0)
    end = char.run_end(data, i + 1, min(hi, i + 8), char.ASCII_LETTERS)
    if end < hi and data[end] == byte.SEMICOLON:
        name = key(data, i + 1, end)
        for k in range(len(_ENTITY_KEYS)):
            if _ENTITY_KEYS[k] == name:
                return _ENTITY_CODES[k], end + 1
    return 0, 0


@borrowing
def _escape(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    r"""(code point, end) of the `\n`, `\x40` or `\u0040` at `i`; end is 0 if there is none."""
    c = data[i + 1] if i + 1 < hi else 0
    if _LETTER_ESCAPES[c]:
        return _LETTER_ESCAPES[c], i + 2
    if c == byte.U:
        code, end = char.number_at(data, i + 2, hi, 4, 16)
        return (code, end) if end == i + 6 else (0, 0)
    if c == byte.X:
        code, end = char.number_at(data, i + 2, hi, 2, 16)
        return (code, end) if code == byte.AT else (0, 0)
    return 0, 0


@borrowing
def _is_space_in_query(data: np.ndarray, i: int, lo: int, hi: int) -> bool:
    """Whether the "+" at `i` is a space of a parameter: "tel=%2B49+30+901820", but not "to=jo+1@doe.org"."""
    if i == lo or i + 1 >= hi or not (char.is_alnum(data[i - 1]) or data[i - 1] == byte.CLOSING_BRACKET):
        return False
    if not (char.is_digit(data[i - 1]) or _BEGINS_NUMBER[data[i + 1]]):
        return False
    left, right = char.run_start(data, i, lo, _IN_GROUP), char.run_end(data, i + 1, hi, _IN_GROUP)
    if i - left > _LONGEST_GROUP or right - i > _LONGEST_GROUP or (right < hi and char.is_lower(data[right])):
        return False  # base64
    start = char.run_start(data, i, max(lo, i - _PLUS_REACH), _IN_PARAMETER)
    end, limit = i, min(hi, i + _PLUS_REACH)
    while (
        end < limit
        and _IN_PARAMETER[data[end]]
        and not (data[end] == byte.PERCENT and data[end + 1] == byte.FOUR)
    ):
        end += 1
    is_parameter = start > lo + 1 and data[start - 1] == byte.EQUALS and char.is_alnum(data[start - 2])
    return is_parameter and not (end < limit and (data[end] == byte.AT or data[end] == byte.PERCENT))


@borrowing
def _is_decoded(data: np.ndarray, i: int, end: int, lo: int, hi: int, code: int) -> bool:
    """Whether a matcher reads the character that `i:end` encodes, one of _PERCENT_ENCODED, as itself."""
    number = end < hi and _BEGINS_NUMBER[data[end]]
    if code == byte.AT:
        return not number  # "12%4012" is a list
    if code == byte.COLON:  # of an IPv6 address
        return i > lo and char.HEX[data[i - 1]] and end < hi and (char.HEX[data[end]] or number)
    if code != byte.SPACE or number:
        return True
    # a group of an IBAN, but not a word: "user:my%20password@"
    is_group = char.run_end(data, end, min(hi, end + 4), _IN_GROUP) == end + 4
    return is_group and i > lo and char.is_digit(data[i - 1])


@borrowing
def _is_wide_digit(data: np.ndarray, i: int) -> bool:
    return data[i] == 0xEF and data[i + 1] == 0xBC and 0x90 <= data[i + 2] < 0x9A


@borrowing
def _is_between_digits(data: np.ndarray, i: int, end: int, lo: int, hi: int) -> bool:
    before = i > lo and (char.is_digit(data[i - 1]) or (i - 3 >= lo and _is_wide_digit(data, i - 3)))
    return before and end < hi and (char.is_digit(data[end]) or (end + 2 < hi and _is_wide_digit(data, end)))


@borrowing
def _odd_at(data: np.ndarray, i: int, lo: int, hi: int, is_odd: np.ndarray) -> tuple[int, int]:
    """(code point, end) of the odd or encoded character at `i`; end is 0 if it is neither."""
    c = data[i]
    if c >= 0x80:
        code, width = decode(data, i, hi)
        if code >= _CODES or not is_odd[code]:
            return 0, 0
        if code in _HYPHENS_OF_NUMBERS and not _is_between_digits(data, i, i + width, lo, hi):
            return 0, 0
        return code, i + width
    if c == byte.PERCENT:
        code, end = char.number_at(data, i + 1, hi, 2, 16)
        if end < i + 3 or not _PERCENT_ENCODED[code]:
            return 0, 0
        return (code, end) if _is_decoded(data, i, end, lo, hi, code) else (0, 0)
    if c == byte.PLUS:
        return (byte.SPACE, i + 1) if _is_space_in_query(data, i, lo, hi) else (0, 0)
    if c == byte.AMPERSAND:
        return _entity(data, i, hi)
    return _escape(data, i, hi) if c == byte.BACKSLASH else (0, 0)


@kernel
def _odd_characters(data: np.ndarray, offsets: np.ndarray, is_odd: np.ndarray) -> np.ndarray:
    """Rows of (document, code point, start, end) of all odd and encoded characters.

    A block of bytes that can begin none, as nearly all are, is passed over at 10 GB/s.
    """
    rows = np.empty((1024, 4), np.int64)
    count, document, i = 0, 0, offsets[0]
    whole = len(data) // _BLOCK
    blocks = data[: whole * _BLOCK].reshape(-1, _BLOCK)
    for block in range(whole + 1):
        stop = len(data)
        if block < whole:
            found = False
            for j in range(_BLOCK):
                c = blocks[block, j]
                found |= (
                    (c == byte.PERCENT)
                    | (c == byte.PLUS)
                    | (c == byte.AMPERSAND)
                    | (c == byte.BACKSLASH)
                    | (c == 0xC2)
                    | ((c >= 0xD8) & (c <= 0xE3))
                    | (c == 0xEF)
                )
            stop = (block + 1) * _BLOCK
            if not found:
                i = max(i, stop)
                continue
        while i < stop:
            if not _MAY_BE_ODD[data[i]]:
                i += 1
                continue
            while offsets[document + 1] <= i:
                document += 1
            code, end = _odd_at(data, i, offsets[document], offsets[document + 1], is_odd)
            if end == 0:
                i += 1
                continue
            if count == len(rows):
                rows = np.concatenate((rows, np.empty_like(rows)))
            rows[count, DOCUMENT], rows[count, PATTERN] = document, code
            rows[count, START], rows[count, END] = i, end
            count += 1
            i = end
    return rows[:count].copy()
