"""What an optimizer's step goes through."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer


def trained(
    optimizer: Optimizer,
) -> Iterator[tuple[dict[str, Any], torch.Tensor, dict[str, torch.Tensor], torch.Tensor]]:
    """Group, parameter, state (empty before the first step) and gradient of each parameter that has one."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield group, parameter, optimizer.state[parameter], parameter.grad
