"""Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2): the sign of an
interpolated momentum.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from trainer.optim.trained import trained


class Lion(Optimizer):
    """Decoupled weight decay; one tensor of state per parameter. The learning rate is usually 3 to 10 times
    lower than AdamW's.
    """

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float]) -> None:
        super().__init__(groups, {"betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group, parameter, state, gradient in trained(self):
            beta1, beta2 = group["betas"]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter)
            momentum = state["exp_avg"]
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(momentum.lerp(gradient, 1 - beta1).sign_(), alpha=-group["lr"])
            momentum.lerp_(gradient, 1 - beta2)
