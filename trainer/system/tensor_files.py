"""Files of tensors, in safetensors."""

from pathlib import Path

import torch
from safetensors.torch import save_file

WEIGHTS_OF_PYTORCH = {"format": "pt"}  # by which `transformers` knows whose weights these are


def save_tensors(
    tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Writes a file with the permissions of any other new file. safetensors alone makes one that nobody but
    its owner may read, so that a model could be neither served nor evaluated by another user.
    """
    path.touch()
    permissions = path.stat().st_mode
    save_file(tensors, path, metadata=metadata)
    path.chmod(permissions)
