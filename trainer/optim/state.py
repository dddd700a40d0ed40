"""Optimizer state as named tensors `<slot>/<parameter>`, as a checkpoint stores it. Hyperparameters always
come from the configuration.
"""

import torch
from torch import nn
from torch.optim import Optimizer

from trainer.parallel.dtensor import as_part_of, is_split, local_tensor

QUANTIZED = ("codes", "scale", "qmap")


def state_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, torch.Tensor]:
    """Every tensor of the optimizers, not copied. A tensor in 8 bits gives its parts, such as
    `<slot>.codes/<parameter>`.
    """
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{slot}{part}/{names[parameter]}": plain.detach()
        for optimizer in optimizers
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
        for part, plain in _parts(value).items()
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
        slot, _, part = slot.partition(".")
        full = local_tensor(parameter).shape
        if part in ("", "codes") and value.shape not in (torch.Size(()), full):  # a count, or of each weight
            raise ValueError(
                f"optimizer state {key} has shape {tuple(value.shape)}, its parameter "
                f"{tuple(parameter.shape)}"
            )
        if part == "codes":
            whole = {inner: tensors[f"{slot}.{inner}/{name}"].to(parameter.device) for inner in QUANTIZED}
            owners[parameter].state[parameter][slot] = _quantized(whole, parameter.dtype)
        elif not part:
            # Only a fused optimizer counts its steps on the device.
            stays = slot == "step" and not owners[parameter].defaults.get("fused")
            if not stays:
                value = as_part_of(parameter, value) if value.shape == full else value.to(parameter.device)
            owners[parameter].state[parameter][slot] = value


def _parts(value: torch.Tensor) -> dict[str, torch.Tensor]:
    if is_split(value) or not hasattr(value, "__tensor_flatten__"):
        return {"": value}
    return {f".{part}": getattr(value, part) for part in value.__tensor_flatten__()[0]}


def _quantized(parts: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    from torchao.optim.subclass_8bit import OptimState8bit

    return OptimState8bit(**parts, signed=bool(parts["qmap"].min() < 0), dtype=dtype)
