"""What must be the same in all processes of a run, on whatever machines they are."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from trainer.config import RunConfig
from trainer.system.run_history import flat

# Machines may have a disk under another path, and other cores.
OF_A_MACHINE: Any = {
    "training": {"threads": True, "pretrained": {"path"}},
    "data": {"tokenizer": True, "corpora": {"__all__": {"train", "validation"}}},
}


def must_be_alike(config: RunConfig) -> dict[str, str]:
    """The settings, each file of the trainer by its hash, and the version of PyTorch."""
    settings = config.model_dump(mode="json", include={"training", "data"}, exclude=OF_A_MACHINE)
    root = Path(__file__).parents[1]
    code = {
        f"trainer/{path.relative_to(root)}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*.py")
    }
    return {**flat(settings), **code, "PyTorch": torch.__version__}
