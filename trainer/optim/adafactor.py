"""Adafactor (Shazeer and Stern 2018, arXiv 1804.04235): the second moment of a matrix is kept as the means of
its rows and of its columns.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

EPS, DECAY, CLIP_THRESHOLD = 1e-30, -0.8, 1.0  # section 9 of the paper


class Adafactor(Optimizer):
    """No momentum, decoupled weight decay. An update is clipped to a root mean square of 1, so that learning
    rates are comparable with AdamW's.

    torch.optim.Adafactor has another learning rate than the schedule's: it multiplies it by the size of the
    weight, and caps it at 1 / sqrt(step). It also waits for the device three times a parameter, which the
    fake tensors of `trainer.run.fit.measured_step` cannot do.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                update = _scaled(parameter.grad, self._moments(parameter))
                update /= (update.square().mean().sqrt() / CLIP_THRESHOLD).clamp_(min=1.0)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"])

    def _moments(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        """The state of a parameter, of which a step more is counted: `row` and `column` of a matrix,
        `exp_avg_sq` of a vector.
        """
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device="cpu")
            if parameter.ndim >= 2:
                state["row"] = torch.zeros_like(parameter[..., 0])
                state["column"] = torch.zeros_like(parameter[..., 0, :])
            else:
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state


def _scaled(gradient: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    """The gradient over the root of its second moment, which first moves towards the gradient's square."""
    square, forget = gradient.square() + EPS, (state["step"] ** DECAY).to(gradient.device)
    if "exp_avg_sq" in state:
        return gradient * state["exp_avg_sq"].lerp_(square, forget).rsqrt()
    row = state["row"].lerp_(square.mean(dim=-1), forget)
    column = state["column"].lerp_(square.mean(dim=-2), forget)
    of_rows = (row / row.mean(dim=-1, keepdim=True)).rsqrt_()
    return gradient * of_rows.unsqueeze(-1) * column.rsqrt().unsqueeze(-2)
