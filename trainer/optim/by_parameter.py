"""Optimizers whose rule reads one parameter at a time: Lion and Adafactor, with an external learning rate and
decoupled weight decay.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer

EPS = 1e-30
DECAY = -0.8
CLIP_THRESHOLD = 1.0


def trained(
    optimizer: Optimizer,
) -> Iterator[tuple[dict[str, Any], torch.Tensor, dict[str, torch.Tensor], torch.Tensor]]:
    """Yields group, parameter, state (empty before the first step) and gradient of each parameter with a
    gradient.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield group, parameter, optimizer.state[parameter], parameter.grad


class Lion(Optimizer):
    """The sign of an interpolated momentum (Chen et al. 2023, "Symbolic Discovery of Optimization
    Algorithms", algorithm 2); one tensor of state per parameter. The learning rate is usually 3 to 10 times
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


class Adafactor(Optimizer):
    """The second moments of a matrix are kept as row and column means (Shazeer and Stern 2018). No momentum;
    updates are clipped to a root mean square of 1, so that learning rates are comparable with AdamW's.

    torch.optim.Adafactor is not used: it scales the rate by the parameter's size and caps it at 1/sqrt(step),
    which overrides the schedule; it waits for the device three times per parameter, and fails on sharded
    tensors.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group, parameter, state, gradient in trained(self):
            if not state:
                state["step"] = torch.zeros((), device="cpu")
                if parameter.ndim >= 2:
                    state["row"] = torch.zeros_like(parameter[..., 0])
                    state["column"] = torch.zeros_like(parameter[..., 0, :])
                else:
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] += 1
            update = _scaled(gradient, state, forget=(state["step"] ** DECAY).to(parameter.device))
            update /= (update.square().mean().sqrt() / CLIP_THRESHOLD).clamp_(min=1.0)
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update, alpha=-group["lr"])


def _scaled(gradient: torch.Tensor, state: dict[str, torch.Tensor], forget: torch.Tensor) -> torch.Tensor:
    """The gradient divided by the root of its second moment, after that moment moved by the share `forget`
    towards the gradient's square.
    """
    square = gradient.square() + EPS
    if "exp_avg_sq" in state:
        return gradient * state["exp_avg_sq"].lerp_(square, forget).rsqrt()
    row, column = (
        state["row"].lerp_(square.mean(dim=-1), forget),
        state["column"].lerp_(square.mean(dim=-2), forget),
    )
    return (
        gradient
        * (row / row.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
        * column.rsqrt().unsqueeze(-2)
    )
