"""How much memory training needs, measured by a step on fake tensors, which have shapes but no content.

There are two models of memory. `estimate` is the exact one: preflight compares it with the free memory, and
`python -m trainer plan` scales it to GPUs that are not in this machine. `upper_bound` is a formula that
spares most runs the second or two of an estimate: preflight skips it where far more than the bound is free.
"""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from trainer.config import TrainingConfig
from trainer.model.attention import choose, masks_documents
from trainer.model.llama import Llama
from trainer.model.precision import AUTOCAST, resolve
from trainer.optim import weight_averaging
from trainer.optim.build import build
from trainer.run.batch import Batch
from trainer.run.step import loss_sum

# What a process on a CPU holds besides tensors: buffers of libraries, and holes in the heap, which never
# returns memory to the system. Measured on processes of 0.4 to 1.0 GB.
LIBRARY_BYTES, HOLES = 30_000_000, 0.15


@dataclass(frozen=True)
class Memory:
    """Bytes in one process without compilation.

    `activations`: what a micro-batch keeps for its backward pass. `working`: what a step holds for a moment
    in addition, such as logits. `copy` and `beside` are 0 on a GPU; on a CPU they are the copy that a
    checkpoint is written from, and what is not a tensor. `validation` is what a batch of a validation needs
    beyond the peak of a step. `total` is the peak, at which not every part is at its largest.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    validation: int
    copy: int
    beside: int
    total: int

    @property
    def lasting(self) -> int:
        """What stays however small the batch is."""
        return self.weights + self.gradients + self.optimizer + self.copy

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer state": self.optimizer,
            "activations": self.activations,
            "logits and the like": self.working,
            "a larger batch in validation": self.validation,
            "the copy that checkpoints are written from": self.copy,
            "libraries and holes in the heap": self.beside,
        }
        return (
            f"{self.total / 1e6:,.0f} MB "
            f"({', '.join(f'{name} {size / 1e6:,.0f}' for name, size in parts.items() if size)})"
        )


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def copies_with_averages(training: TrainingConfig) -> int:
    """Copies of the weights in the optimizers' state while a checkpoint is made.

    Each average is one, and the weights in training are another.
    """
    averages = len(weight_averaging.slots(training.averaging))
    return averages + 1 if averages else 0


def upper_bound(training: TrainingConfig, vocab_size: int, validation_windows: int = 0) -> int:
    """More bytes than training needs: everything that has a size, as often as it could be held."""
    model = training.model
    tokens = max(training.micro_batch_tokens, validation_windows * training.seq_len)
    block = 32 * model.d_model + 8 * model.d_ff + 8 * model.n_heads * training.seq_len
    return (28 + 8 * copies_with_averages(training)) * model.parameters(vocab_size) + 4 * tokens * (
        model.n_layers * block + 8 * vocab_size
    )


def estimate(
    training: TrainingConfig,
    vocab_size: int,
    processes: int,
    device: torch.device,
    validation_windows: int = 0,
) -> Memory:
    """Measures steps with one and with two layers; each further layer needs what the second does.

    Takes a second or two. The model is not split: `processes` only decide whether gradients accumulate.
    `validation_windows`: how many windows a validation reads at a time, if they are to be counted.
    """
    (one, two), more = (
        (_step(training, vocab_size, processes, device, validation_windows, layers) for layers in (1, 2)),
        training.model.n_layers - 1,
    )
    weights, optimizer, activations, forward_and_backward, update, validating = (
        a + more * (b - a) for a, b in zip(one, two, strict=True)
    )
    step = max(forward_and_backward, update)
    peak = max(step, validating)
    copy = beside = 0
    if device.type == "cpu":
        # With averages the copy holds the weights in training too. In the process they take the place of the
        # gradients, which are gone by then.
        trained = weights if training.averaging else 0
        copy = weights + optimizer + trained
        beside = LIBRARY_BYTES + int(HOLES * (peak + copy))
    return Memory(
        weights=weights,
        gradients=weights,
        optimizer=optimizer,
        activations=activations,
        working=max(0, step - 2 * weights - optimizer - activations),
        validation=peak - step,
        copy=copy,
        beside=beside,
        total=peak + copy + beside,
    )


def _step(
    training: TrainingConfig,
    vocab_size: int,
    processes: int,
    device: torch.device,
    validation_windows: int,
    layers: int,
) -> Sequence[int]:
    """Bytes of weights, optimizer state and activations; the peaks of forward and backward pass, of the
    update, and of a batch of a validation.
    """
    precision, masked = (
        resolve(training.precision, device),
        masks_documents(training.document_masking, device),
    )
    backend = choose(
        training.attention,
        device,
        AUTOCAST.get(precision, torch.float32),
        training.seq_len,
        training.model.head_dim,
        masked,
        training.model.attention_sinks,
    )
    if backend in ("flex", "flash"):
        backend, masked = "sdpa", False  # keeps what their kernels keep, without a mask
    with FakeTensorMode(), device:
        shape = training.model.model_copy(
            update={
                "n_layers": layers,
                "attention_sinks": backend == "math" and training.model.attention_sinks,
            }
        )
        model = Llama(
            shape, vocab_size, training.seq_len, backend, training.activation_checkpointing, training.dropout
        )
        # The update with 8-bit moments is compiled, which fake tensors do not support. Counts too much: fp32.
        in_fp32 = {"kind": "adamw"} if training.optimizer.kind == "adamw_8bit" else {}
        optimizers = build(model, training.optimizer.model_copy(update=in_fp32))
        windows = torch.zeros(training.micro_batch_windows, training.seq_len + 1, dtype=torch.int64)
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
                model.zero_grad(set_to_none=True)  # no accumulation: gradients replace activations
            before = live.peak = live.now
            keys = torch.zeros(len(windows), 2, dtype=torch.int32) if training.dropout else None
            loss = loss_sum(model, Batch.of(windows, 0 if masked else None, keys), precision)
            activations = live.now - before
            loss.backward()
            forward_and_backward = live.peak
            del loss
            model.zero_grad(set_to_none=True)
            live.peak = live.now
            if validation_windows:
                windows = torch.zeros(validation_windows, training.seq_len + 1, dtype=torch.int64)
                with torch.no_grad():
                    loss_sum(model, Batch.of(windows, 0 if masked else None), precision)
            return weights, state, activations, forward_and_backward, update, live.peak


class _LiveBytes(TorchDispatchMode):
    """`now`: bytes of the live tensors made since entering; `peak`: the most at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._storages: set[int] = set()

    def count(self, tensors: Iterable[torch.Tensor]) -> int:
        """Adds tensors made before entering; returns `now`."""
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
