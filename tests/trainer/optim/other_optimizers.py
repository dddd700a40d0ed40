"""Optimizers as a user may have them, for `training.optimizer.python`."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import SGD, Optimizer


class Counts(SGD):
    """Counts its steps in itself, where no checkpoint finds the count."""

    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, lr=lr)
        self.steps = 0

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            group["lr"] /= self.steps
        super().step(closure)


class WithoutGroups(Optimizer):
    def __init__(self, parameters: list[torch.Tensor]) -> None:
        super().__init__([parameter.detach() for parameter in parameters], {})


class WantsAClosure(SGD):
    def step(self, closure: Callable[[], float]) -> float:  # type: ignore[override]
        return closure()


class Squares(SGD):
    """Reads the second pass before each step, and counts what it read: a number beside each weight."""

    def wants_second_pass(self, step: int) -> bool:
        return True

    def read_second_pass(self, targets: torch.Tensor) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["read"] = state.get("read", 0) + int(targets)
