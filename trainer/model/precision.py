"""The precision of matrix products over fp32 weights: autocast, TF32, fp8, and loss scaling for fp16."""

import importlib.util
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import nn

from trainer.system.errors import TrainerError, install

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}

# For fp8 both sides of a matrix must be multiples of this.
FP8_MULTIPLE = 16
FIRST_FP8_CAPABILITY = (8, 9)
# As torch.amp.GradScaler: halved at an overflow, doubled after this many steps without one.
FIRST_SCALE = 2.0**16
GROWTH_STEPS = 2000


def resolve_precision(wanted: Precision | Literal["auto"], device: torch.device) -> Precision:
    """The precision for `device`; `auto` is bf16 where the hardware multiplies it, else fp32.

    Turns TF32 on or off for the process. Raises TrainerError for TF32 and fp8 without the hardware for them,
    and for fp8 without torchao.
    """
    if wanted == "fp8":
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < FIRST_FP8_CAPABILITY:
            raise TrainerError(
                "training.precision fp8 is for NVIDIA GPUs of compute capability 8.9 or later (L4, H100 and "
                "newer): choose auto or bf16"
            )
        if importlib.util.find_spec("torchao") is None:
            raise TrainerError(
                f"training.precision fp8 needs torchao: run {install('torchao')}, or choose bf16"
            )
    if wanted == "tf32" and device.type != "cuda":
        raise TrainerError(
            "training.precision tf32 is for NVIDIA GPUs, but this run is on a CPU: choose auto, fp32 or bf16"
        )
    if device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32" if wanted == "tf32" else "ieee"
    if wanted != "auto":
        return wanted
    return "bf16" if multiplies_bf16(device) else "fp32"


def convert_to_fp8(blocks: nn.Module, emulated: bool = False) -> None:
    """Has torchao multiply in 8 bits in the linear layers whose sides are multiples of 16, one scale for each
    tensor; weights keep their type. `emulated` runs on any device, slowly."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(
        blocks, module_filter_fn=_fits_fp8, config=Float8LinearConfig(emulate=emulated)
    )


def _fits_fp8(module: nn.Module, name: str) -> bool:
    return (
        isinstance(module, nn.Linear)
        and module.in_features % FP8_MULTIPLE == 0
        and module.out_features % FP8_MULTIPLE == 0
    )


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the hardware multiplies bf16; emulation is many times slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    return torch.autocast(
        device.type, dtype=AUTOCAST.get(precision, torch.bfloat16), enabled=precision in AUTOCAST
    )


@dataclass
class LossScale:
    """The factor on the loss in the backward pass, by which gradients are divided afterwards: it keeps small
    gradients from becoming zero in fp16.

    All fields are saved in a checkpoint. `skipped_steps` counts the steps whose gradients overflowed: their
    tokens count as seen, and the schedule waits.
    """

    value: float = 1.0
    good_steps: int = 0
    skipped_steps: int = 0
    in_use: bool = False

    @classmethod
    def of(cls, precision: Precision) -> Self:
        return cls(FIRST_SCALE, in_use=True) if precision == "fp16" else cls()

    def resumed_from(self, saved: "LossScale") -> "LossScale":
        """The scale after a checkpoint; one of another precision only passes on `skipped_steps`."""
        return saved if saved.in_use == self.in_use else replace(self, skipped_steps=saved.skipped_steps)

    def adapt(self, finite: bool) -> None:
        """Updates the scale after a step; `finite` says whether its gradients were."""
        if not finite:
            self.value, self.good_steps, self.skipped_steps = self.value / 2, 0, self.skipped_steps + 1
        elif self.in_use:
            self.good_steps += 1
            if self.good_steps == GROWTH_STEPS:
                self.value, self.good_steps = self.value * 2, 0
