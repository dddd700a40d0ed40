"""Text as deduplication compares it: in NFC, casefolded, without characters that nobody sees, stripped of
white space; and the properties of characters by which it is.
"""

import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.compiled import borrowing, kernel
from pipeline.stages.text import CODE_POINTS, code_points, decode, first_word, last_word_end, utf8_arrays

WORD, MARK, SPACE, NFC_UNSURE, ALONE, EAST_ASIAN = 1, 2, 4, 8, 16, 32
# Scripts that put no space between words: Thai, Lao, Tibetan, Burmese, Khmer, and what extends them.
_WITHOUT_SPACES = "e00-109f 1780-17ff 19e0-19ff a9e0-a9ff aa60-aa7f"
# Chinese and Japanese put none between words either, but sentences are short: Han, kana, bopomofo.
_EAST_ASIAN = "3005-3007 3041-312f 31a0-31ff 3400-4dbf 4e00-9fff f900-faff ff66-ff9d 20000-323af"
FOLDED_CODE_POINTS = 0x20000
_ASSIGNED = "0-3347f e0000-e01ff"
# Casefolding makes at most three characters of one, and no UTF-8 byte more than three (U+0390).
GROWTH = 3
# Soft hyphens, characters without width, marks of direction: copies of a text differ in them.
_UNSEEN = "ad 61c 180e 200b-200f 202a-202e 2060-206f feff"
_LEFT_OUT = np.uint64(1 << 63)
PADDING = 32
_FIRST_UNSURE_BYTE = "\u0300".encode()[0]
_TOP = np.uint64(21)
_MASK = np.uint64(0x1FFFFF)


class Characters(NamedTuple):
    """Properties by code point."""

    classes: np.ndarray  # uint8[0x110000], flags; ALONE where a character is compared as a word of its own
    # uint64[0x20000], up to three code points of 21 bits, lowest first; 0 if unchanged, _LEFT_OUT if left out
    folds: np.ndarray


def _flags(character: str) -> int:
    mark = unicodedata.category(character)[0] == "M"
    # The only non-marks that compose with the character before them are vowels and final consonants of Hangul
    # and, from Unicode 16 on, vowels of Kirat Rai.
    joins = "\u1160" <= character <= "\u11ff" or "\U00016d63" <= character <= "\U00016d6a"
    unsure = mark or joins or not unicodedata.is_normalized("NFC", character)
    return WORD * character.isalnum() | MARK * mark | SPACE * character.isspace() | NFC_UNSURE * unsure


def _folded(character: str) -> int:
    folded = character.casefold()
    return 0 if folded == character else sum(ord(part) << 21 * place for place, part in enumerate(folded))


@lru_cache(maxsize=1)
def characters() -> Characters:
    """Built once in a process, in about 0.1 s, from the Unicode tables of this Python."""
    classes = np.zeros(CODE_POINTS, np.uint8)
    for block in code_points(_ASSIGNED):
        classes[block] = [_flags(chr(code)) for code in range(block.start, block.stop)]
    for flag, scripts in ((ALONE, _WITHOUT_SPACES), (EAST_ASIAN, _EAST_ASIAN)):
        for script in code_points(scripts):
            of_script = classes[script]
            of_script[of_script & WORD != 0] |= flag
    folds = np.array([_folded(chr(code)) for code in range(FOLDED_CODE_POINTS)], np.uint64)
    for unseen in code_points(_UNSEEN):
        folds[unseen] = _LEFT_OUT
    return Characters(classes, folds)


@lru_cache
def classes_with(alone: int) -> np.ndarray:
    """The classes in which the characters of these classes are ALONE, and no others."""
    classes = characters().classes
    return np.where(classes & alone, classes | ALONE, classes & np.uint8(~ALONE & 0xFF)).astype(np.uint8)


def normal_form(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """`utf8_arrays` of the column in NFC. Normalizes only rows with a character that may (de)compose."""
    data, offsets = utf8_arrays(column)
    unsure = np.zeros(len(column), np.bool_)
    _mark_unsure_rows(data, offsets, characters().classes, unsure)
    if not unsure.any():
        return data, offsets
    column = column.cast(pa.large_string())
    composed = pc.utf8_normalize(column.filter(pa.array(unsure)), "NFC")
    return utf8_arrays(pc.replace_with_mask(column, pa.array(unsure), composed))


@kernel
def _mark_unsure_rows(data: np.ndarray, offsets: np.ndarray, classes: np.ndarray, unsure: np.ndarray) -> None:
    for row in range(len(unsure)):
        end = offsets[row + 1]
        for i in range(offsets[row], end):
            if data[i] >= _FIRST_UNSURE_BYTE and classes[decode(data, i, end)[0]] & NFC_UNSURE:
                unsure[row] = True
                break


@borrowing
def _encode(code: int, out: np.ndarray, at: int) -> int:
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
    else:
        if code < 0x10000:
            out[at] = 0xE0 | code >> 12
        else:
            out[at] = 0xF0 | code >> 18
            out[at + 1] = 0x80 | code >> 12 & 0x3F
            at += 1
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        at += 1
    out[at + 1] = 0x80 | code & 0x3F
    return at + 2


@borrowing
def count_characters(data: np.ndarray, end: int) -> int:
    """Characters in data[:end]: the bytes that do not continue one."""
    count = 0
    for i in range(end):
        count += (data[i] & 0xC0) != 0x80
    return count


@borrowing
def end_of_character(data: np.ndarray, end: int, number: int) -> int:
    """The byte at which the first `number` characters of data[:end] end."""
    for i in range(end):
        if (data[i] & 0xC0) != 0x80:
            if number == 0:
                return i
            number -= 1
    return end


@borrowing
def normalize(
    data: np.ndarray, start: int, end: int, classes: np.ndarray, folds: np.ndarray, out: np.ndarray
) -> int:
    """Writes data[start:end], stripped and casefolded, to `out` with zeros after it; returns its bytes.

    `out` holds GROWTH times the bytes and PADDING more.
    """
    start = first_word(data, start, end, classes, SPACE)
    end = last_word_end(data, start, end, classes, SPACE)
    size = end - start
    high = np.uint8(0)
    for i in range(size):
        byte = data[start + i]
        out[i] = byte | np.uint8(0x20) if np.uint8(byte - np.uint8(65)) < np.uint8(26) else byte
        high |= byte
    if high >= 0x80:
        size = _fold(data, start, end, folds, out)
    for i in range(size, size + 16):
        out[i] = 0
    return size


@borrowing
def _fold(data: np.ndarray, start: int, end: int, folds: np.ndarray, out: np.ndarray) -> int:
    i, at = start, 0
    while i < end:
        if data[i] < 0x80:
            out[at] = data[i] | np.uint8(0x20) if np.uint8(data[i] - np.uint8(65)) < np.uint8(26) else data[i]
            i += 1
            at += 1
            continue
        code, width = decode(data, i, end)
        folded = folds[code] if code < FOLDED_CODE_POINTS else np.uint64(0)
        if folded == _LEFT_OUT:
            i += width
            continue
        if folded == 0:
            for k in range(width):
                out[at + k] = data[i + k]
            at += width
        while folded:
            at = _encode(np.int64(folded & _MASK), out, at)
            folded >>= _TOP
        i += width
    return at
