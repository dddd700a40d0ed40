"""Perplexity, beside the loss wherever a person reads it."""

import math

LARGEST_EXPONENT = 700.0  # of a loss that has exploded; beyond 709 a float overflows


def perplexity(loss: float) -> float:
    """e to the `loss` in nats a token."""
    return math.exp(min(loss, LARGEST_EXPONENT))
