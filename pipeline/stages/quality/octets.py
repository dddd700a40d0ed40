"""Text eight bytes at a time: hashes, newlines, and words of ASCII."""

import numpy as np

from pipeline.stages.compiled import borrowing

_PRIME = 0x9E3779B97F4A7C15  # 2^64 / golden ratio
_FACTOR, _HALF, _TOP = np.uint64(_PRIME), np.uint64(32), np.uint64(56)
_0, _1, _7, _8, _16, _24 = (np.uint64(number) for number in (0, 1, 7, 8, 16, 24))
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_NEWLINE = np.uint64(0x0A)
_NONE = np.int64(0)


def _all(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101010101010101)


# Added to bytes below 0x80, `_FROM_x` sets the highest bit of those from x on.
_FROM_VISIBLE, _FROM_0, _AFTER_9 = _all(0x80 - 0x21), _all(0x80 - ord("0")), _all(0x80 - ord("9") - 1)
_FROM_A, _AFTER_Z, _LOWER = _all(0x80 - ord("a")), _all(0x80 - ord("z") - 1), _all(0x20)
_NEWLINES, _HASHES, _DOTS = _all(0x0A), _all(ord("#")), _all(ord("."))


def bytes_hash(content: bytes) -> int:
    """The hash of a word or line as the kernels compute it."""
    value = _PRIME
    for start in range(0, len(content) + 1, 8):
        block = content[start : start + 8]
        octet = int.from_bytes(block, "little") | (len(block) << 56 if len(block) < 8 else 0)
        value = (value ^ octet) * _PRIME % 2**64
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
def _marked(marks: np.uint64) -> np.int64:
    """How many bytes have their highest bit set. No other bit may be set."""
    return np.int64((marks >> _7) * _ONES >> _TOP)


@borrowing
def _mixed(value: np.uint64, block: np.uint64) -> np.uint64:
    value = (value ^ block) * _FACTOR
    return value ^ value >> _HALF


@borrowing
def hash_and_characters(data: np.ndarray, start: int, stop: int) -> tuple[np.uint64, int]:
    """`bytes_hash` of `data[start:stop]`, and its characters: the bytes that do not continue one."""
    value, characters = _FACTOR, stop - start
    position, end = np.uint64(start), np.uint64(stop)
    while position + _8 <= end:
        block = octet(data, position)
        if block & _HIGH:
            characters -= _marked(block & ~(block << _1) & _HIGH)
        value = _mixed(value, block)
        position += _8
    rest, shift = (end - position) << _TOP, _0
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
        found = (block - _ONES) & ~block & _HIGH
        if found:
            break
        position += _8
    while position < end and np.uint64(data[position]) != _NEWLINE:
        position += _1
    return np.int64(position)


@borrowing
def ascii_word(
    data: np.ndarray, start: int, stop: int
) -> tuple[np.int64, np.uint64, bool, np.int64, np.int64, np.int64]:
    """The end of the word of visible ASCII characters at `start`, its hash, whether it has a letter, and how
    many of its characters are not alphanumeric, `#` and `.`.

    The end is `start` for a word with any other character, and for one in the last bytes before `stop`.
    """
    position, end, value = np.uint64(start), np.uint64(stop), _FACTOR
    letters, others, hashes, dots = _0, _NONE, _NONE, _NONE
    while position + _8 <= end:
        block = octet(data, position)
        stops = ~((block & _LOW) + _FROM_VISIBLE) & _HIGH | block & _HIGH
        first = stops & (~stops + _1)
        inside = (first >> _7) - _1  # the bytes before the first of `stops`, all eight without one
        block &= inside
        if block & _HIGH:
            break
        lowered = block | _LOWER
        of_letters = (lowered + _FROM_A) & ~(lowered + _AFTER_Z)
        letters |= of_letters & _HIGH
        signs = ~(of_letters | (block + _FROM_0) & ~(block + _AFTER_9)) & inside & _HIGH
        if signs:
            others += _marked(signs)
            hashes += _marked(~((block ^ _HASHES) + _LOW) & inside & _HIGH)
            dots += _marked(~((block ^ _DOTS) + _LOW) & inside & _HIGH)
        if first:
            length = np.uint64(_marked(inside & _HIGH))
            after = data[position + length]
            # white space, not a control character or the beginning of another one
            if after == 0x20 or 0x09 <= after <= 0x0D:
                return (
                    np.int64(position + length),
                    _mixed(value, block | length << _TOP),
                    letters != _0,
                    others,
                    hashes,
                    dots,
                )
            break
        value = _mixed(value, block)
        position += _8
    return np.int64(start), value, False, _NONE, _NONE, _NONE
