"""The state of optimizers as named tensors, as a checkpoint stores it. Settings always come from the
configuration.

    <slot>/<parameter>              a tensor
    <slot>.<part>/<parameter>       the parts of one in 8 bits
    number.<slot>/<parameter>       a Python number, as a tensor without dimensions
    group.<key>/<parameter>         a number in the parameter's group, if it is the first of it

A number in a group is state, and no setting, if it is not what the optimizer was made with.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.parallel.dtensor import as_part_of, is_split, local_tensor
from trainer.system.errors import TrainerError

PARTS = ("codes", "scale", "qmap")
NUMBER, GROUP = "number.", "group."
DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}
# What the trainer sets in a group, and what no checkpoint needs.
OWN = ("params", "lr", "base_lr", "weight_decay")


def state_tensors(model: nn.Module, optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """Every tensor and number of the optimizers; tensors are not copied. Raises TrainerError for state that
    is neither.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{slot}/{names[parameter]}": value
        for optimizer in optimizers
        for parameter, slot, value in _state(optimizer)
    }


def _state(optimizer: Optimizer) -> Iterator[tuple[Tensor, str, Tensor]]:
    """Each piece of the state with its parameter and the name of its slot."""
    for parameter, slots in optimizer.state.items():
        for slot, value in slots.items():
            if type(value) in DTYPES:
                yield parameter, f"{NUMBER}{slot}", _as_tensor(value)
            elif not isinstance(value, Tensor):
                raise _not_storable(optimizer, f"keeps {slot!r} of a parameter", value)
            elif is_split(value) or not hasattr(value, "__tensor_flatten__"):
                yield parameter, slot, value.detach()
            elif _is_in_8_bits(value):
                yield from ((parameter, f"{slot}.{part}", getattr(value, part)) for part in PARTS)
            else:
                raise _not_storable(optimizer, f"keeps {slot!r} of a parameter", value)
    for group in optimizer.param_groups:
        for key, value in group.items():
            if key not in OWN and type(value) in DTYPES and value != optimizer.defaults.get(key):
                yield group["params"][0], f"{GROUP}{key}", _as_tensor(value)


def _as_tensor(number: bool | int | float) -> Tensor:
    return torch.tensor(number, dtype=DTYPES[type(number)])


def _not_storable(optimizer: Optimizer, what: str, value: Any) -> TrainerError:
    return TrainerError(
        f"training.optimizer: {type(optimizer).__name__} {what} as {type(value).__name__}, which a "
        "checkpoint cannot hold: choose an optimizer whose state is tensors and numbers"
    )


def load_state_tensors(model: nn.Module, optimizers: list[Optimizer], tensors: dict[str, Tensor]) -> None:
    """Loads tensors named as by `state_tensors`, each this process's part. Raises ValueError if a tensor's
    parameter is unknown or has another shape.
    """
    owners = {
        parameter: (optimizer, group)
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
        optimizer, group = owners[parameter]
        state, (whole, _, part) = optimizer.state[parameter], slot.rpartition(".")
        if slot.startswith(GROUP):
            group[slot.removeprefix(GROUP)] = value.item()
        elif slot.startswith(NUMBER):
            state[slot.removeprefix(NUMBER)] = value.item()
        elif part == PARTS[0]:
            parts = [tensors[f"{whole}.{part}/{name}"].to(parameter.device) for part in PARTS]
            state[whole] = _in_8_bits(parts, parameter.dtype)
        elif part not in PARTS:
            _check_shape(key, value, parameter)
            state[slot] = _placed(slot, value, parameter, optimizer)


def _check_shape(key: str, value: Tensor, parameter: Tensor) -> None:
    """Means over rows and the like have some of the parameter's dimensions."""
    if not set(value.shape) <= {1, *local_tensor(parameter).shape}:
        raise ValueError(
            f"optimizer state {key} has shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}"
        )


def _placed(slot: str, value: Tensor, parameter: Tensor, optimizer: Optimizer) -> Tensor:
    """The value on the device of its parameter, and split like it. Only a fused optimizer counts its steps
    on that device.
    """
    if value.shape == local_tensor(parameter).shape:
        return as_part_of(parameter, value)
    stays = slot == "step" and not value.ndim and not optimizer.defaults.get("fused")
    return value if stays else value.to(parameter.device)


def _is_in_8_bits(value: Tensor) -> bool:
    module = sys.modules.get("torchao.optim.subclass_8bit")
    return module is not None and isinstance(value, module.OptimState8bit)


def _in_8_bits(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
    from torchao.optim.subclass_8bit import OptimState8bit

    return OptimState8bit(*parts, signed=bool(parts[-1].min() < 0), dtype=dtype)
