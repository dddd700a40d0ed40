"""Hashes of text, eight bytes at a time, and newlines."""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.hashing import GOLDEN_RATIO

_HALF, _TOP = np.uint64(32), np.uint64(56)
_0, _1, _7, _8, _16, _24 = (np.uint64(number) for number in (0, 1, 7, 8, 16, 24))
_HIGH, _ONES = np.uint64(0x8080808080808080), np.uint64(0x0101010101010101)
_CASES = np.uint64(0x2020202020202020)
_127, _128 = np.uint64(127), np.uint64(128)
_LOWER_A, _LOWER_Z, _DIGIT_0, _DIGIT_9 = (np.uint64(character) for character in b"az09")
_NEWLINE = np.uint8(0x0A)
_NEWLINES = _NEWLINE * _ONES


def bytes_hash(content: bytes) -> int:
    """The hash of a word or line as the kernels compute it."""
    factor = value = int(GOLDEN_RATIO)
    for start in range(0, len(content) + 1, 8):
        block = content[start : start + 8]
        octet = int.from_bytes(block, "little") | (len(block) << 56 if len(block) < 8 else 0)
        value = (value ^ octet) * factor % 2**64
        value ^= value >> 32
    return value


@borrowing
def octet(data: np.ndarray, position: np.uint64) -> np.uint64:
    """The eight bytes from `position` on, the first one lowest."""
    # unsigned, because numba checks a signed index for being negative
    low = np.uint64(data[position]) | np.uint64(data[position + _1]) << _8
    low |= np.uint64(data[position + np.uint64(2)]) << _16 | np.uint64(data[position + np.uint64(3)]) << _24
    high = np.uint64(data[position + np.uint64(4)]) | np.uint64(data[position + np.uint64(5)]) << _8
    high |= np.uint64(data[position + np.uint64(6)]) << _16 | np.uint64(data[position + _7]) << _24
    return low | high << _HALF


@borrowing
def _mixed(value: np.uint64, block: np.uint64) -> np.uint64:
    value = (value ^ block) * GOLDEN_RATIO
    return value ^ value >> _HALF


@borrowing
def _between(block: np.uint64, first: np.uint64, last: np.uint64) -> np.uint64:
    """The high bit of each byte from `first` to `last`, of eight bytes below 0x80."""
    return (block + (_128 - first) * _ONES) & ~(block + (_127 - last) * _ONES) & _HIGH


@borrowing
def alphanumeric_run(block: np.uint64) -> tuple[np.uint64, bool]:
    """How many of the eight bytes, from the lowest on, are letters and digits of ASCII, and whether there are
    letters among these.
    """
    ascii = block & ~_HIGH
    letters = _between(ascii | _CASES, _LOWER_A, _LOWER_Z)
    others = (~(letters | _between(ascii, _DIGIT_0, _DIGIT_9)) | block) & _HIGH
    if others == _0:
        return _8, letters != _0
    before = (others - _1) & ~others  # all bits below the first of the others
    return (((before & _ONES) * _ONES) >> _TOP) - _1, letters & before != _0


@borrowing
def _continuing(block: np.uint64) -> np.int64:
    """How many of the eight bytes continue a character."""
    return np.int64(((block & ~(block << _1) & _HIGH) >> _7) * _ONES >> _TOP)


@borrowing
def hash_and_characters(data: np.ndarray, start: int, stop: int) -> tuple[np.uint64, int]:
    """`bytes_hash` of `data[start:stop]`, and its characters: the bytes that do not continue one."""
    value, characters = GOLDEN_RATIO, stop - start
    position, end = np.uint64(start), np.uint64(stop)
    while position + _8 <= end:
        block = octet(data, position)
        if block & _HIGH:
            characters -= _continuing(block)
        value = _mixed(value, block)
        position += _8
    rest, shift = (end - position) << _TOP, _0
    if position + _8 <= np.uint64(data.size):  # eight bytes at once, of which the last are left out
        block = octet(data, position) & ((_1 << ((end - position) << np.uint64(3))) - _1)
        if block & _HIGH:
            characters -= _continuing(block)
        return _mixed(value, rest | block), characters
    while position < end:
        byte = np.uint64(data[position])
        characters -= byte & np.uint64(0xC0) == np.uint64(0x80)
        rest |= byte << shift
        shift += _8
        position += _1
    return _mixed(value, rest), characters


@borrowing
def next_newline(data: np.ndarray, start: int, stop: int) -> np.int64:
    """The position of the first newline in `data[start:stop]`, else `stop`."""
    position, end = np.uint64(start), np.uint64(stop)
    while position + _8 <= end:
        block = octet(data, position) ^ _NEWLINES
        # exact up to the first zero byte
        if (block - _ONES) & ~block & _HIGH:
            break
        position += _8
    while position < end and data[position] != _NEWLINE:
        position += _1
    return np.int64(position)
