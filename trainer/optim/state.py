"""Optimizer state as named tensors, `<slot>/<parameter>`: what a checkpoint stores. Hyperparameters come from the configuration, never from here."""

import torch
from torch import nn
from torch.optim import Optimizer


def state_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, torch.Tensor]:
    """Every tensor that the optimizers keep, on the CPU."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{slot}/{names[parameter]}": value.detach().cpu().contiguous()
        for optimizer in optimizers
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
    }


def load_state_tensors(model: nn.Module, optimizers: list[Optimizer], tensors: dict[str, torch.Tensor]) -> None:
    """The inverse. ValueError when a tensor has no parameter or does not fit it."""
    owners = {parameter: optimizer for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]}
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        slot, _, name = key.partition("/")
        if name not in parameters:
            raise ValueError(f"optimizer state for unknown parameter {name}")
        parameter = parameters[name]
        if slot != "step" and value.shape != parameter.shape:
            raise ValueError(f"optimizer state {key} has shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}")
        owners[parameter].state[parameter][slot] = value.to(parameter.device)
