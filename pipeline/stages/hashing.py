"""Hashes: the factor of multiplicative hashing (Knuth, The Art of Computer Programming 3, section 6.4), and
MurmurHash3, 128 bits, with its finalizer (Austin Appleby, public domain, smhasher).
"""

import numpy as np

from pipeline.stages.compiled import borrowing, kernel

GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by it: products of near numbers are far apart
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_N1, _N2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_M1, _M2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_FIVE, _WIDTH = np.uint64(5), np.uint64(64)
_R27, _R31, _R33 = np.uint64(27), np.uint64(31), np.uint64(33)


@borrowing
def mix64(value: np.uint64) -> np.uint64:
    """MurmurHash3's 64-bit finalizer: a bijection in which every input bit moves every output bit."""
    value = (value ^ (value >> _R33)) * _M1
    value = (value ^ (value >> _R33)) * _M2
    return value ^ (value >> _R33)


@borrowing
def _rotate(value: np.uint64, by: np.uint64) -> np.uint64:
    return (value << by) | (value >> (_WIDTH - by))


@kernel
def murmur128(blocks: np.ndarray, size: int) -> tuple[np.uint64, np.uint64]:
    """MurmurHash3 x64 128, seed 0, of `size` bytes of `blocks` (little-endian, zeros after `size`)."""
    low, high = np.uint64(0), np.uint64(0)
    for i in range(0, 2 * (size // 16), 2):
        low = (_rotate(low ^ (_rotate(blocks[i] * _C1, _R31) * _C2), _R27) + high) * _FIVE + _N1
        high = (_rotate(high ^ (_rotate(blocks[i + 1] * _C2, _R33) * _C1), _R31) + low) * _FIVE + _N2
    if size % 16:
        tail = 2 * (size // 16)
        low ^= _rotate(blocks[tail] * _C1, _R31) * _C2
        high ^= _rotate(blocks[tail + 1] * _C2, _R33) * _C1
    low, high = low ^ np.uint64(size), high ^ np.uint64(size)
    low += high
    high += low
    low, high = mix64(low), mix64(high)
    low += high
    return low, high + low
