"""Iteration over the parameters that an optimizer updates."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer


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
