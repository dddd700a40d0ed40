"""Sophia-G (Liu et al. 2023, arXiv 2305.14342): the average gradient over an estimate of the curvature's
diagonal, clipped element by element.

Source of the update: the authors' github.com/Liuhong99/Sophia. The Gauss-Newton-Bartlett estimate (algorithm
2 of the paper) is n times the square of the gradient of the mean loss over n targets that the model draws
itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

EPS = 1e-15
INTERVAL = 10  # steps between estimates, each of which costs another pass; as in the paper


class SophiaG(Optimizer):
    """Reads a second pass before every tenth step (`trainer.optim.second_pass.SecondPass`). Decoupled weight
    decay; two tensors of state per parameter.
    """

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float], rho: float) -> None:
        super().__init__(groups, {"betas": betas, "rho": rho})

    def wants_second_pass(self, step: int) -> bool:
        return step % INTERVAL == 0

    @torch.no_grad()
    def read_second_pass(self, targets: torch.Tensor) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    curvature = self._averages(parameter)["curvature"]
                    curvature.lerp_(parameter.grad.square() * targets, 1 - group["betas"][1])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                averages = self._averages(parameter)
                momentum = averages["exp_avg"].lerp_(parameter.grad, 1 - group["betas"][0])
                ratio = (momentum.abs() / (group["rho"] * averages["curvature"] + EPS)).clamp_(max=1.0)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.addcmul_(momentum.sign(), ratio, value=-group["lr"])

    def _averages(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        state = self.state[parameter]
        if not state:
            state["exp_avg"], state["curvature"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state
