"""Dropout as a pure function of (seed, sample, place, element): there is no random state to save, and any
number of processes drop the same elements.
"""

import hashlib

import torch
from torch import nn

# The factors of MurmurHash3's finalizer (Appleby), as signed integers of 32 bits.
FACTORS = (0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32)
BETWEEN_PLACES = 0x1E3779B9


class Dropout(nn.Module):
    """Zeroes a `share` of the elements and scales the others up."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """`x` [batch, length, d_model]; `keys` [batch, 2] from `keys_at`, or None to drop nothing."""
        if keys is None:
            return x
        numbers = torch.arange(x.shape[1] * x.shape[2], dtype=torch.int32, device=x.device).view(
            1, *x.shape[1:]
        )
        first, second = keys[:, :1, None], keys[:, 1:, None]
        mixed = (numbers + first) * FACTORS[0]
        mixed = (mixed ^ ((mixed >> 13) & 0x7FFFF) ^ second) * FACTORS[1]
        mixed = mixed ^ ((mixed >> 16) & 0xFFFF)
        kept = (mixed & 0x7FFFFFFF) >= int(self.share * 2**31)
        return x * (kept / (1 - self.share)).to(x.dtype)


def sample_keys(seed: int, *, first_sample: int, samples: int) -> torch.Tensor:
    """A key of two numbers for each sample: int32 [samples, 2]."""
    digests = [
        hashlib.blake2b(f"{seed}/dropout/{sample}".encode(), digest_size=8).digest()
        for sample in range(first_sample, first_sample + samples)
    ]
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.int32).view(samples, 2)


def keys_at(place: int, keys: torch.Tensor | None) -> torch.Tensor | None:
    """The keys of `sample_keys` for one `place`, which numbers a model's dropouts.

    A tensor, because a compiler would compile a block anew for each number that it finds in it.
    """
    if keys is None:
        return None
    return torch.stack([keys[:, 0], keys[:, 1] + place * BETWEEN_PLACES % 2**31], dim=1)
