"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the momentum of each matrix, orthogonalised
by Newton-Schulz iterations.

torch.optim.Muon always iterates in bf16, which takes a CPU that only emulates bf16 20 to 30 times as long as
fp32.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from trainer.model.precision import multiplies_bf16
from trainer.parallel.dtensor import full_tensor, local_slices, local_tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
# The most elements that are orthogonalised together: one small matrix does not keep a device busy, several
# large ones take memory for nothing.
STACKED_ELEMENTS = 2**24


class Muon(Optimizer):
    """Nesterov momentum and decoupled weight decay, for matrices only; one tensor of state per parameter.

    Of sharded matrices each process keeps its part of the state. Every process gathers the full matrices, a
    few at a time, and orthogonalises them.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float, iterations: int) -> None:
        super().__init__(groups, {"momentum": momentum, "iterations": iterations})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for alike in stacks(group["params"]):
                averages = torch.stack(
                    [full_tensor(self._nesterov(parameter, group["momentum"])) for parameter in alike]
                )
                updates = orthogonalised(averages, group["iterations"])
                for parameter, update in zip(alike, updates, strict=True):
                    rows, columns = parameter.shape
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    local_tensor(parameter).add_(
                        update[local_slices(parameter)],
                        alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)),
                    )

    def _nesterov(self, parameter: torch.Tensor, momentum: float) -> torch.Tensor:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        average: torch.Tensor = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(average, momentum)


def stacks(parameters: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yields the parameters with a gradient in groups of one shape and at most STACKED_ELEMENTS elements, or
    of one parameter.
    """
    shapes: dict[torch.Size, list[torch.Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            shapes[parameter.shape].append(parameter)
    for shape, alike in shapes.items():
        count = max(1, STACKED_ELEMENTS // shape.numel())
        for start in range(0, len(alike), count):
            yield alike[start : start + count]


def orthogonalised(matrices: torch.Tensor, iterations: int) -> torch.Tensor:
    """Moves the singular values of each of `matrices` [n, rows, columns] near 1. Computes in bf16 if the
    hardware supports it, otherwise in fp32.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.to(torch.bfloat16 if multiplies_bf16(matrices.device) else torch.float32)
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
