"""The backends of attention, and which can be used where."""

from typing import Literal

import torch

from trainer.config import ModelConfig
from trainer.model.attention import flash
from trainer.model.attention.documents import Backend
from trainer.system.errors import TrainerError

# Up to this length plain matrix products are faster than SDPA's CPU kernel. bf16, Zen 5: 1.65 to 2.1 times
# up to 512. fp32, Zen 3, forward and backward, compiled, 6 heads of 64: 1.1 times at 128, 1.2 at 256, 1.5 at
# 512, 1.0 at 1024. fp32 stops at 256 because SDPA does not store the scores: at 512 a step of 16 windows and
# 6 layers took 2.1 GB with SDPA and 2.8 GB with products, which were at most 9% faster.
# Fixed lengths, no measurement at start: in a step of the default recipe in bf16 on a Xeon with AMX products
# took 474 ms of processor time and SDPA 478. On a busy machine a measurement of milliseconds would give two
# runs of one configuration different results.
MATH_MAX_LENGTH = {torch.bfloat16: 512, torch.float16: 512, torch.float32: 256}

NARROWEST_FLEX_HEAD = 16  # there are no kernels for narrower ones


def choose_backend(
    wanted: Backend | Literal["auto"],
    device: torch.device,
    dtype: torch.dtype,
    *,
    model: ModelConfig,
    seq_len: int,
    masked: bool,
) -> Backend:
    """The backend that `wanted` stands for with queries of `dtype`; `masked` when documents are kept apart.

    On a GPU `auto` takes flash in bf16 and fp16 if a package is installed whose kernels are the fastest for
    this GPU and the heads of the `model`, else flex for masked documents and SDPA for others: SDPA would
    compute hidden scores, too, and keep a mask of length x length in each layer. Heads too narrow for flex
    get SDPA all the same. Flash has no attention sinks, and settings with both are refused where they are
    read. Raises TrainerError when `wanted` cannot be used here.
    """
    head_dim = model.head_dim
    in_half = device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)
    if wanted == "flash" and not in_half:
        raise TrainerError(
            "training.attention flash cannot be used: it needs a GPU, and bf16 or fp16; set attention: auto"
        )
    if wanted == "flex" and device.type != "cuda":
        raise TrainerError("training.attention flex has no backward pass on a CPU; set attention: auto")
    if wanted == "flex" and head_dim < NARROWEST_FLEX_HEAD:
        raise TrainerError(
            f"training.attention flex needs heads of at least {NARROWEST_FLEX_HEAD} numbers, and "
            f"model.head_dim is {head_dim}; set attention: auto"
        )
    if wanted != "auto":
        return wanted
    if device.type == "cpu":
        return "math" if seq_len <= MATH_MAX_LENGTH[dtype] else "sdpa"
    if in_half and not model.attention_sinks and flash.is_fastest_on(device, head_dim):
        return "flash"
    return "flex" if masked and head_dim >= NARROWEST_FLEX_HEAD else "sdpa"


def masks_documents(wanted: bool | Literal["auto"], device: torch.device) -> bool:
    """Whether attention keeps the documents of a window apart. `auto`: on a GPU, where it costs little, but
    not on a CPU, where a mask makes attention slower.
    """
    return device.type == "cuda" if wanted == "auto" else wanted
