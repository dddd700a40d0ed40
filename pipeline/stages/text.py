"""A text column as the two flat arrays that compiled kernels read, and the characters in them."""

import unicodedata

import numpy as np
import pyarrow as pa

from pipeline.stages.compiled import borrowing

# Part of the version of each stage that asks Python what a letter is: Pythons differ in new characters.
UNICODE = f"unicode-{unicodedata.unidata_version}"
CODE_POINTS = 0x110000
REPLACEMENT = 0xFFFD


def code_points(ranges: str) -> list[slice]:
    """The places in an array of all code points, of ranges such as "3005-3007 30fb" in hexadecimal digits."""
    return [
        slice(int(first, 16), int(last or first, 16) + 1)
        for first, _, last in (one.partition("-") for one in ranges.split())
    ]


def utf8_arrays(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The UTF-8 bytes (uint8) and the n + 1 byte offsets (int64) of a string column.

    No copy when it is `large_string`. Row i is `data[offsets[i]:offsets[i + 1]]`; offsets of a sliced column
    do not start at 0. A null reads as the empty string. Both are read-only, whatever Arrow's buffers are:
    numba would compile each kernel again for writable ones.
    """
    if column.null_count:
        column = column.fill_null("")
    if column.type != pa.large_string():
        column = column.cast(pa.large_string())
    _, offset_buffer, data_buffer = column.buffers()
    offsets = (
        np.frombuffer(offset_buffer, dtype=np.int64, count=len(column) + 1, offset=8 * column.offset)
        if offset_buffer
        else np.zeros(1, np.int64)
    )
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, np.uint8)
    data.flags.writeable = offsets.flags.writeable = False
    return data, offsets


@borrowing
def decode(data: np.ndarray, position: int, stop: int) -> tuple[int, int]:
    """Code point and width in bytes of the character at `position`, which must not be ASCII.

    (Four times as fast, measured, when the caller handles ASCII.) A byte that is not UTF-8 reads as U+FFFD of
    width 1.
    """
    lead = np.int64(data[position])
    if 0xC2 <= lead < 0xE0 and position + 1 < stop:
        return (lead & 0x1F) << 6 | (data[position + 1] & 0x3F), 2
    if 0xE0 <= lead < 0xF0 and position + 2 < stop:
        return (lead & 0x0F) << 12 | np.int64(data[position + 1] & 0x3F) << 6 | (data[position + 2] & 0x3F), 3
    if 0xF0 <= lead < 0xF5 and position + 3 < stop:
        code_point = (
            (lead & 0x07) << 18
            | np.int64(data[position + 1] & 0x3F) << 12
            | np.int64(data[position + 2] & 0x3F) << 6
            | (data[position + 3] & 0x3F)
        )
        return min(code_point, CODE_POINTS - 1), 4
    return REPLACEMENT, 1


@borrowing
def character_at(data: np.ndarray, position: int, stop: int) -> tuple[int, int]:
    """Code point and width in bytes of any character."""
    return (int(data[position]), 1) if data[position] < 0x80 else decode(data, position, stop)


@borrowing
def character_before(data: np.ndarray, start: int, stop: int) -> tuple[int, int]:
    """Code point and place of the character that ends at `stop`. None begins before `start`."""
    position = stop - 1
    while position > start and data[position] & 0xC0 == 0x80:
        position -= 1
    return character_at(data, position, stop)[0], position


@borrowing
def first_word(data: np.ndarray, start: int, stop: int, classes: np.ndarray, white: int) -> int:
    """The position of the first character that is not of the class `white`, or `stop`."""
    position = start
    while position < stop:
        code_point, width = character_at(data, position, stop)
        if not classes[code_point] & white:
            break
        position += width
    return position


@borrowing
def last_word_end(data: np.ndarray, start: int, stop: int, classes: np.ndarray, white: int) -> int:
    """The end of the last character that is not of the class `white`, or `start`."""
    while stop > start:
        code_point, position = character_before(data, start, stop)
        if not classes[code_point] & white:
            break
        stop = position
    return stop


@borrowing
def equals(data: np.ndarray, i: int, hi: int, expected: np.ndarray) -> bool:
    """Whether the bytes from `i` on, before `hi`, begin with `expected`."""
    if i < 0 or i + len(expected) > hi:
        return False
    for j in range(len(expected)):  # noqa: SIM110 - any() over a generator does not compile
        if data[i + j] != expected[j]:
            return False
    return True
