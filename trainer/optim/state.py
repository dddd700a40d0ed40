"""Optimizer state as named tensors `<slot>/<parameter>`, as a checkpoint stores it. Hyperparameters always
come from the configuration.
"""

import torch
from torch import nn
from torch.optim import Optimizer

from trainer.parallel.dtensor import as_part_of, local_tensor


def state_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, torch.Tensor]:
    """Every tensor of the optimizers, not copied."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{slot}/{names[parameter]}": value.detach()
        for optimizer in optimizers
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
    }


def load_state_tensors(
    model: nn.Module, optimizers: list[Optimizer], tensors: dict[str, torch.Tensor]
) -> None:
    """Loads tensors named as by `state_tensors`, each this process's part. Raises ValueError if a tensor's
    parameter is unknown or has another shape.
    """
    owners = {
        parameter: optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        slot, _, name = key.partition("/")
        if name not in parameters:
            raise ValueError(f"optimizer state {key} belongs to the unknown parameter {name}")
        parameter = parameters[name]
        full = local_tensor(parameter).shape
        if value.shape not in (torch.Size(()), full):  # a count, or of each weight
            raise ValueError(
                f"optimizer state {key} has shape {tuple(value.shape)}, its parameter "
                f"{tuple(parameter.shape)}"
            )
        owners[parameter].state[parameter][slot] = (
            as_part_of(parameter, value) if value.shape == full else value.to(parameter.device)
        )
