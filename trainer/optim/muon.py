"""Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the momentum of each matrix, orthogonalised
by Newton-Schulz iterations.

torch.optim.Muon iterates in bf16 everywhere; a CPU that only emulates bf16 takes 20 to 30 times as long for
it as for fp32.
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
# Of matrices that are orthogonalised together: small ones keep neither cores nor a GPU busy alone, large ones
# do and would take memory.
STACKED_ELEMENTS = 2**24


class Muon(Optimizer):
    """Nesterov momentum and decoupled weight decay, for matrices only. One tensor of state for each
    parameter.

    Of matrices that are split each process has its part of the state, but gathers them, a few at a time, and
    orthogonalises them whole, as all others do.
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
    """Those that have a gradient, of one shape at a time: together at most STACKED_ELEMENTS, or one."""
    shapes: dict[torch.Size, list[torch.Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            shapes[parameter.shape].append(parameter)
    for shape, alike in shapes.items():
        count = max(1, STACKED_ELEMENTS // shape.numel())
        for start in range(0, len(alike), count):
            yield alike[start : start + count]


def orthogonalised(matrices: torch.Tensor, iterations: int) -> torch.Tensor:
    """`matrices` [n, rows, columns], each with singular values near 1, in bf16 where the hardware multiplies
    it, else in fp32.
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
