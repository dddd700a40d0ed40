"""Blocks under torch.compile: whether a run compiles them, what that needs, and how it is done."""

import os
import shutil
import sysconfig
from pathlib import Path

import torch

from trainer.config import TrainingConfig
from trainer.model.attention import masks_documents
from trainer.model.joined_products import join_products
from trainer.model.llama import Llama
from trainer.run.fit.store_barrier import wait_for_stores
from trainer.system.errors import TrainerError


def compiles(training: TrainingConfig, device: torch.device) -> bool:
    """Whether blocks are compiled. `auto`: on a GPU, where uncompiled ones take a third more time."""
    return device.type == "cuda" if training.compile == "auto" else training.compile


def check(training: TrainingConfig, device: torch.device) -> None:
    """Raises TrainerError where Triton, which compiles for GPUs, cannot build its launchers: they are in C,
    against Python's headers.
    """
    uses_flex = training.attention in ("auto", "flex") and masks_documents(training.document_masking, device)
    if device.type != "cuda" or not (compiles(training, device) or uses_flex):
        return
    missing = []
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        missing.append("a C compiler (gcc or clang)")
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        missing.append(f"Python's headers (no Python.h in {headers})")
    if missing:
        raise TrainerError(
            f"training.compile {training.compile} and attention {training.attention} generate code for the "
            f"GPU, which needs {' and '.join(missing)}. Install them (build-essential and python3-dev on "
            "Debian), or set training.compile to false and training.attention to flash, "
            "or sdpa in fp32"
        )


def compile_blocks(model: Llama, training: TrainingConfig, device: torch.device) -> None:
    """Compiles each block, and on a GPU the loss: a CPU has its own. Parameters keep their names."""
    # Windows of each length are compiled separately; at torch's limit the run would fail half-way.
    torch._dynamo.config.recompile_limit += len({stage.seq_len for stage in training.curriculum.stages})
    if device.type == "cuda":
        wait_for_stores()
        model.loss_is_compiled = True
        if training.parallel.tp == 1:
            join_products(model.model.layers)
    for block in model.model.layers:
        block.compile(fullgraph=True, dynamic=False)
