"""Where bf16 is worth it: autocast over fp32 weights where the hardware multiplies bf16 itself."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]


def resolve(wanted: Literal["auto", "fp32", "bf16"], device: torch.device) -> Precision:
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bf16" if native else "fp32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
