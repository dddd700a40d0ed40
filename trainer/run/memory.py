"""How much memory a run needs on this machine, found by doing a step without any: on fake tensors, which have
shapes but no content.
"""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from trainer.config import RunConfig, TrainingConfig
from trainer.model.attention import choose, masks_documents
from trainer.model.llama import Llama
from trainer.model.precision import AUTOCAST, resolve
from trainer.optim import weight_averaging
from trainer.optim.build import build
from trainer.run.step import loss_sum

# What a process on a CPU holds beside its tensors: buffers of libraries, and the holes in a heap that is
# never given back. Measured at 0.4 to 1.0 GB.
LIBRARY_BYTES, HOLES = 30_000_000, 0.15


@dataclass(frozen=True)
class Memory:
    """Bytes in one process, uncompiled; `total` at the peak, when not all of each part need be there.

    `activations`: what a micro-batch keeps for its backward pass. `working`: what a step holds for a moment
    beyond the other parts, such as logits. Where training is on the CPU, `copy` is what a checkpoint is
    written from, and `beside` what is no tensor.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    copy: int
    beside: int
    total: int

    @property
    def lasting(self) -> int:
        """What no smaller batch would save."""
        return self.weights + self.gradients + self.optimizer + self.copy

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer state": self.optimizer,
            "activations": self.activations,
            "logits and the like": self.working,
            "the copy that checkpoints are written from": self.copy,
            "libraries and holes in the heap": self.beside,
        }
        return (
            f"{self.total / 1e6:,.0f} MB "
            f"({', '.join(f'{name} {size / 1e6:,.0f}' for name, size in parts.items() if size)})"
        )


def copies_with_averages(training: TrainingConfig) -> int:
    """Copies of the weights in the optimizers' state while a checkpoint is made: the averages, and beside
    them the weights in training.
    """
    averages = len(weight_averaging.slots(training.averaging))
    return averages + 1 if averages else 0


def rough(config: RunConfig) -> int:
    """About what a run needs, in bytes, rather too much: everything that has a size, as often as could be."""
    training, vocab_size = config.training, config.data.vocab_size
    model, tokens = training.model, training.micro_batch_tokens
    block = 32 * model.d_model + 8 * model.d_ff + 8 * model.n_heads * training.seq_len
    return (28 + 8 * copies_with_averages(training)) * model.parameters(vocab_size) + 4 * tokens * (
        model.n_layers * block + 8 * vocab_size
    )


def estimate(config: RunConfig, processes: int, device: torch.device) -> Memory:
    """From steps of the model with one and with two layers: each further layer needs what the second does.
    Takes about a second.
    """
    (one, two), more = (
        (_step(config, processes, device, layers) for layers in (1, 2)),
        config.training.model.n_layers - 1,
    )
    weights, optimizer, activations, forward_and_backward, update = (
        a + more * (b - a) for a, b in zip(one, two, strict=True)
    )
    peak = max(forward_and_backward, update)
    copy = beside = 0
    if device.type == "cpu":
        # With averages the weights in training are copied too: in memory gradients make room for them, which
        # are gone by then.
        trained = weights if config.training.averaging else 0
        copy = weights + (0 if config.training.checkpoint.model_only else optimizer + trained)
        beside = LIBRARY_BYTES + int(HOLES * (peak + copy))
    return Memory(
        weights=weights,
        gradients=weights,
        optimizer=optimizer,
        activations=activations,
        working=max(0, peak - 2 * weights - optimizer - activations),
        copy=copy,
        beside=beside,
        total=peak + copy + beside,
    )


def _step(config: RunConfig, processes: int, device: torch.device, layers: int) -> Sequence[int]:
    """Bytes of weights, of optimizer state, of what is kept for the backward pass; the most while there are
    activations, and in the update.
    """
    training, data = config.training, config.data
    precision, masked = (
        resolve(training.precision, device),
        masks_documents(training.document_masking, device),
    )
    backend = choose(
        training.attention,
        device,
        AUTOCAST.get(precision, torch.float32),
        training.seq_len,
        masked,
        training.model.attention_sinks,
    )
    if backend in ("flex", "flash"):
        backend, masked = "sdpa", False  # its kernel for long sequences keeps what theirs keep, and no mask
    with FakeTensorMode(), device:
        shape = training.model.model_copy(
            update={
                "n_layers": layers,
                "attention_sinks": backend == "math" and training.model.attention_sinks,
            }
        )
        model = Llama(
            shape,
            data.vocab_size,
            training.seq_len,
            backend,
            training.activation_checkpointing,
            training.dropout,
        )
        # Moments in 8 bits are compiled, which cannot be tried like this: they are counted as fp32, too much.
        in_fp32 = {"kind": "adamw"} if training.optimizer.kind == "adamw_8bit" else {}
        optimizers = build(model, training.optimizer.model_copy(update=in_fp32))
        windows = torch.zeros(training.micro_batch_size, training.seq_len + 1, dtype=torch.int64)
        with _LiveBytes() as live:
            weights = live.count(model.parameters())
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            for optimizer in optimizers:
                optimizer.step()
            if training.averaging is not None:
                weight_averaging.fill(training.averaging, optimizers)
            update, state = live.peak, live.now - 2 * weights
            together = training.micro_batch_tokens * processes
            if all(stage.global_batch_tokens == together for stage in training.curriculum.stages):
                model.zero_grad(set_to_none=True)  # nothing is accumulated: gradients come as activations go
            before = live.peak = live.now
            keys = torch.zeros(len(windows), 2, dtype=torch.int32) if training.dropout else None
            loss = loss_sum(model, windows, precision, data.bot_id if masked else None, dropout_keys=keys)
            activations = live.now - before
            loss.backward()
            return weights, state, activations, live.peak, update


class _LiveBytes(TorchDispatchMode):
    """`now`: the bytes of all tensors made since, and still referred to; `peak`: the most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._storages: set[int] = set()

    def count(self, tensors: Iterable[torch.Tensor]) -> int:
        """Adds tensors made before; returns `now`."""
        for tensor in tensors:
            self._count(tensor)
        return self.now

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._storages:
            self._storages.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._storages.discard(key)
        self.now -= size

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operator(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self._count, made)
        return made
