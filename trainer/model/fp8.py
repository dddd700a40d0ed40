"""Matrix products in 8-bit floating point by torchao, one scale per tensor; weights keep their type."""

import importlib.util

import torch
from torch import nn

from trainer.system.errors import TrainerError

# Both sides of a matrix must be multiples of this for the hardware.
MULTIPLE = 16
FIRST_CAPABILITY = (8, 9)


def check(device: torch.device) -> None:
    """Raises TrainerError where the hardware or torchao is missing."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FIRST_CAPABILITY:
        raise TrainerError(
            "training.precision fp8 is for NVIDIA GPUs of compute capability 8.9 or later (L4, H100 and "
            "newer): choose auto or bf16"
        )
    if importlib.util.find_spec("torchao") is None:
        raise TrainerError(
            "training.precision fp8 needs torchao: pip install 'groundwork[torchao]', or choose bf16"
        )


def convert(blocks: nn.Module, emulated: bool = False) -> None:
    """Converts the linear layers whose sides are multiples of 16. `emulated` runs on any device, slowly."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(blocks, module_filter_fn=_fits, config=Float8LinearConfig(emulate=emulated))


def _fits(module: nn.Module, name: str) -> bool:
    return (
        isinstance(module, nn.Linear)
        and module.in_features % MULTIPLE == 0
        and module.out_features % MULTIPLE == 0
    )
