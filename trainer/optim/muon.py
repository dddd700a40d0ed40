"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the momentum of each matrix, orthogonalised by Newton-Schulz iterations.

torch.optim.Muon iterates in bf16 everywhere; a CPU that only emulates bf16 takes 20 to 30 times as long for it as for fp32.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from trainer.optim.trained import trained
from trainer.parallel.pieces import local, region, whole
from trainer.precision import multiplies_bf16

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(Optimizer):
    """Nesterov momentum and decoupled weight decay, for matrices only. One tensor of state for each parameter.

    Of matrices that are split each process has its part of the state, but gathers them one by one and orthogonalises them whole, as all others do.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float, iterations: int) -> None:
        super().__init__(groups, {"momentum": momentum, "iterations": iterations})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group, parameter, state, gradient in trained(self):
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            momentum = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
            update = orthogonalised(whole(gradient.lerp(momentum, group["momentum"])), group["iterations"])
            rows, columns = parameter.shape
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            local(parameter).add_(update[region(parameter)], alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))


def orthogonalised(matrix: torch.Tensor, iterations: int) -> torch.Tensor:
    """`matrix` [rows, columns] with singular values near 1, in bf16 where the hardware multiplies it, else in fp32."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(torch.bfloat16 if multiplies_bf16(matrix.device) else torch.float32)
    x = x.T if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
