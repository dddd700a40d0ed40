"""Host memory that training is copied into, so that it goes on while a checkpoint is written."""

import copy

import torch
from torch import nn

from trainer.model import Llama


class Staging:
    """Made at the first copy, filled again at each later one: as large as what is saved. Pinned beside a GPU."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}

    def copy(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What `tensors` hold now. Valid until the next copy."""
        for name, tensor in tensors.items():
            if name not in self._held:
                self._held[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._held[name].copy_(tensor.detach(), non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return {name: self._held[name] for name in tensors}


def host_model(model: Llama, staging: Staging) -> Llama:
    """The model as it is now, its weights in host memory; tied weights stay tied."""
    weights = staging.copy(dict(model.named_parameters()))
    # What deepcopy finds in its memo it does not copy: every parameter is replaced by its copy, wherever it occurs.
    replaced = {id(parameter): nn.Parameter(weights[name], requires_grad=False) for name, parameter in model.named_parameters()}
    return copy.deepcopy(model, replaced).cpu()
