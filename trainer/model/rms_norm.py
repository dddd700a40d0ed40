"""The norm before each part of a block, before the head and, with `qk_norm`, of queries and keys."""

import torch
from torch import nn

from trainer.model import cpu_backward


class RMSNorm(nn.Module):
    """x over its root mean square, times a weight. Returns the type of the products that read it."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        device = x.device.type
        # Cast once: under autocast, each matrix product that reads it would cast its own copy.
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        if cpu_backward.applies_to(x, self.weight):
            promoted = torch.promote_types(x.dtype, self.weight.dtype)
            return cpu_backward.RMSNormed.apply(x, self.weight, self.eps, dtype or promoted)
        normed = nn.functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        return normed if dtype is None else normed.to(dtype)
