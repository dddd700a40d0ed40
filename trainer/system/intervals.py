"""Figures with their intervals of 95%."""

import math
from collections.abc import Sequence

Z = 1.959964  # of a normal distribution, 95% lie within so many standard deviations
Interval = dict[str, float]


def wilson(right: float, of: int) -> Interval:
    """A share with its interval (Wilson 1927): never beyond 0 and 1, and right for small samples. Where items
    are partly right, the interval is too wide rather than too narrow.
    """
    share = right / of
    middle, spread = share + Z * Z / (2 * of), Z * math.sqrt(share * (1 - share) / of + (Z / (2 * of)) ** 2)
    scale = 1 + Z * Z / of
    low, high = (middle - spread) / scale, (middle + spread) / scale
    return {"value": share, "low": max(0.0, low), "high": min(1.0, high)}  # rounding can go beyond


def of_mean(values: Sequence[float]) -> Interval:
    """A mean with its normal interval."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    spread = Z * math.sqrt(variance / len(values))
    return {"value": mean, "low": mean - spread, "high": mean + spread}
