"""A copy of the training state in host memory, so that training continues while a checkpoint is written."""

from collections import deque
from collections.abc import Iterable

import torch

from trainer.model.llama import Llama
from trainer.parallel.gathering import whole_parameters
from trainer.parallel.world import World


class Staging:
    """Buffers as large as what is saved, allocated at the first copy and reused later; pinned for tensors on
    a GPU.
    """

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}
        self._model: Llama | None = None

    def copy(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Copies named tensors. The copies are valid until the next call."""
        copied, on_gpu = {}, False
        for name, tensor in tensors:
            if name not in self._held:
                self._held[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            copied[name] = self._held[name].copy_(tensor.detach(), non_blocking=True)
            on_gpu |= tensor.is_cuda
        if on_gpu:
            torch.cuda.synchronize()
        return copied

    def model(self, model: Llama, world: World) -> Llama | None:
        """Copies the unsplit model to host memory. A collective if the model is split; only the main process
        gets the copy.
        """
        weights = whole_parameters(model)
        if not world.is_main:
            deque(weights, maxlen=0)
            return None
        copied = self.copy(weights)
        if self._model is None:
            with torch.device("meta"):
                self._model = Llama(model.config, model.vocab_size, model.max_length, model.model.backend)
            self._model.materialise(torch.device("cpu"))
            self._model.context = model.context
        for name, parameter in self._model.named_parameters():
            parameter.data = copied[name]
        return self._model
