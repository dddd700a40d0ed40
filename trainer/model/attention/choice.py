"""The backends of attention, and which can be used where."""

from typing import Literal

import torch

from trainer.system.errors import TrainerError

Backend = Literal["math", "sdpa", "flex", "flash"]

# Up to this length plain matrix products are faster than SDPA's CPU kernel. bf16, Zen 5: 1.65 to 2.1 times
# up to 512. fp32, Zen 3, forward and backward, compiled, 6 heads of 64: 1.1 times at 128, 1.2 at 256, 1.5 at
# 512, 1.0 at 1024. fp32 stops at 256 because SDPA does not store the scores: at 512 a step of 16 windows and
# 6 layers took 2.1 GB with SDPA and 2.8 GB with products, which were at most 9% faster.
# Fixed lengths, no measurement at start: in a step of the default recipe in bf16 on a Xeon with AMX products
# took 474 ms of processor time and SDPA 478. On a busy machine a measurement of milliseconds would give two
# runs of one configuration different results.
MATH_MAX_LENGTH = {torch.bfloat16: 512, torch.float16: 512, torch.float32: 256}


def candidates(
    wanted: Backend | Literal["auto"],
    device: torch.device,
    dtype: torch.dtype,
    seq_len: int,
    masked: bool,
    sinks: bool = False,
) -> tuple[Backend, ...]:
    """The backends that `wanted` stands for with queries of `dtype`; `masked` when documents are kept apart.

    Several only for `auto` on a GPU, where `trainer.run.attention_choice` measures them; the first is the one
    that runs on every GPU. SDPA is none of them for masked documents: it computes hidden scores too, and each
    layer keeps a mask of length x length. Attention `sinks` need the sums of the softmax with their gradient,
    which only flex and plain products have. Raises TrainerError when `wanted` cannot be used here.
    """
    if sinks and wanted in ("sdpa", "flash"):
        raise TrainerError(
            f"training.attention {wanted} cannot be used with model.attention_sinks; set attention: auto"
        )
    flash_fits = device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)
    if wanted == "flash" and not flash_fits:
        raise TrainerError(
            "training.attention flash cannot be used: it needs a GPU, and bf16 or fp16; set attention: auto"
        )
    if wanted == "flex" and device.type != "cuda":
        raise TrainerError("training.attention flex has no backward pass on a CPU; set attention: auto")
    if wanted != "auto":
        return (wanted,)
    if device.type == "cpu":
        return ("math",) if sinks or seq_len <= MATH_MAX_LENGTH[dtype] else ("sdpa",)
    if sinks:
        return ("flex",) if masked else ("math",)
    always: Backend = "flex" if masked else "sdpa"
    return (always, "flash") if flash_fits else (always,)


def choose(
    wanted: Backend | Literal["auto"],
    device: torch.device,
    dtype: torch.dtype,
    seq_len: int,
    masked: bool,
    sinks: bool = False,
) -> Backend:
    """The first of the `candidates`: what is used where nothing is measured."""
    return candidates(wanted, device, dtype, seq_len, masked, sinks)[0]


def masks_documents(wanted: bool | Literal["auto"], device: torch.device) -> bool:
    """Whether attention keeps the documents of a window apart. `auto`: on a GPU, where it costs little, but
    not on a CPU, where a mask makes attention slower.
    """
    return device.type == "cuda" if wanted == "auto" else wanted
