"""The factor of multiplicative hashing (Knuth, The Art of Computer Programming 3, section 6.4)."""

import numpy as np

GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by it: products of near numbers are far apart
