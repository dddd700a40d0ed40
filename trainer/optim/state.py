"""Optimizer state as named tensors, `<slot>/<parameter>`: what a checkpoint stores. Hyperparameters come from
the configuration, never from here.
"""

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from trainer.parallel.dtensor import as_part_of, local_tensor

QUANTIZED = ("codes", "scale", "qmap")


def state_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, torch.Tensor]:
    """Every tensor that the optimizers keep, where it is. One in 8 bits is stored as its parts,
    `<slot>.codes/<parameter>` and so on.
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
    """The inverse, from what this process holds of each. ValueError when a tensor has no parameter or does
    not fit it.
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
            raise ValueError(f"optimizer state for unknown parameter {name}")
        parameter = parameters[name]
        slot, _, part = slot.partition(".")
        if part in ("", "codes") and value.shape not in _shapes(local_tensor(parameter)):
            raise ValueError(
                f"optimizer state {key} has shape {tuple(value.shape)}, its parameter "
                f"{tuple(parameter.shape)}"
            )
        if part == "codes":
            whole = {inner: tensors[f"{slot}.{inner}/{name}"].to(parameter.device) for inner in QUANTIZED}
            owners[parameter].state[parameter][slot] = _quantized(whole, parameter.dtype)
        elif not part:
            # Only a fused update counts its steps on the device.
            stays = slot == "step" and not owners[parameter].defaults.get("fused")
            owners[parameter].state[parameter][slot] = value if stays else _placed(value, parameter)


def _shapes(parameter: torch.Tensor) -> set[torch.Size]:
    """Of a count, a whole moment, the means of rows and those of columns."""
    shape = parameter.shape
    return {torch.Size(()), shape, shape[:-1], shape[:-2] + shape[-1:]}


def _placed(value: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor:
    return (
        as_part_of(parameter, value)
        if value.shape == local_tensor(parameter).shape
        else value.to(parameter.device)
    )


def _parts(value: torch.Tensor) -> dict[str, torch.Tensor]:
    if isinstance(value, DTensor) or not hasattr(value, "__tensor_flatten__"):
        return {"": value}
    return {f".{part}": getattr(value, part) for part in value.__tensor_flatten__()[0]}


def _quantized(parts: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    from torchao.optim.subclass_8bit import OptimState8bit

    return OptimState8bit(**parts, signed=bool(parts["qmap"].min() < 0), dtype=dtype)
