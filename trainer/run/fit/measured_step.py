"""What one step of training holds in memory, measured on fake tensors: they have shapes but no content."""

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.config import ChatIds, OptimizerConfig, TrainingConfig
from trainer.model.attention import choose_backend, masks_documents
from trainer.model.llama import Llama
from trainer.model.lora import adapt
from trainer.model.precision import AUTOCAST, autocast, resolve_precision
from trainer.optim import python_class, weight_averaging
from trainer.optim.build import build
from trainer.run.batch import Batch
from trainer.run.objectives import loss_of

FP32 = 4
CPU = torch.device("cpu")
# Bytes of AdamW's state for a weight, and of that with moments in 8 bits: with a scale for 256 of them.
ADAMW_STATE, ADAMW_8BIT_STATE = 2 * FP32, 2 * (1 + FP32 / 256)


class StepBytes(NamedTuple):
    """What a step holds: weights, gradients, optimizer state and activations; the peaks of forward and
    backward pass and of the update.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    forward_and_backward: int
    update: int

    def and_more(self, other: Self, times: float) -> Self:
        """These bytes, plus `times` the bytes by which `other` exceeds them."""
        return type(self)(*(int(own + times * (more - own)) for own, more in zip(self, other, strict=True)))


def measure_step(
    training: TrainingConfig, vocab_size: int, *, accumulates: bool, windows: int, layers: int
) -> StepBytes:
    """Takes a step with so many windows and layers. `accumulates`: gradients are there before the step."""
    measurable, surplus = _measurable(training.optimizer)
    with FakeTensorMode(), CPU:
        model = _model(training, vocab_size, layers)
        optimizers = build(model, measurable)
        tokens = torch.zeros(windows, training.seq_len + 1, dtype=torch.int64)
        with _LiveBytes() as live:
            weights = live.count(model.parameters())
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
            gradients = live.now - weights
            for optimizer in optimizers:
                optimizer.step()
            if training.moving_average:
                weight_averaging.update(training.moving_average, optimizers, before=0, tokens=1)
            update, state = live.peak, live.now - weights - gradients
            if not accumulates:
                model.zero_grad(set_to_none=True)  # gradients replace activations
            before = live.peak = live.now
            keys = torch.zeros(windows, 2, dtype=torch.int32) if training.dropout else None
            reference = torch.zeros(windows, training.seq_len, 2) if training.objective == "dpo" else None
            # Preferences are told apart by their documents in any case.
            batch = Batch.of(tokens, 0, dropout_keys=keys, reference=reference)
            documents = batch.documents if masks_documents(training.document_masking, CPU) else None
            with autocast(resolve_precision(training.precision, CPU), CPU):
                # Not named: the hidden states are freed as in a step.
                loss, _ = loss_of(training).sums(
                    model, model(batch.tokens, documents, dropout_keys=keys), batch
                )
            activations = live.now - before
            loss.backward()
            peak, surplus_bytes = live.peak, int(surplus * weights // FP32)
            state, peak, update = (size - surplus_bytes for size in (state, peak, update))
            return StepBytes(weights, gradients, state, activations, peak, update)


def _model(training: TrainingConfig, vocab_size: int, layers: int) -> Llama:
    """The model with so many layers, and with its adapters if there are any."""
    dtype = AUTOCAST.get(resolve_precision(training.precision, CPU), torch.float32)
    masked = masks_documents(training.document_masking, CPU)
    shape = training.model.model_copy(update={"n_layers": layers})
    backend = choose_backend(
        training.attention, CPU, dtype, model=shape, seq_len=training.seq_len, masked=masked
    )
    model = Llama(
        shape,
        vocab_size,
        training.seq_len,
        backend,
        activation_checkpointing=training.activation_checkpointing,
        dropout=training.dropout,
    )
    if training.lora:
        tuned = training.lora.control_tokens and training.objective != "pretrain"
        adapt(model, training.lora, training.seed, range(len(ChatIds.model_fields)) if tuned else ())
    return model


def _measurable(optimizer: OptimizerConfig) -> tuple[OptimizerConfig, float]:
    """An optimizer whose update fake tensors can run, and how many more bytes of state the given one has for
    a weight. It replaces an optimizer that is compiled, or that is a user's code.
    """
    if optimizer.kind == "python":
        held = python_class.rehearse(optimizer, CPU)
    elif optimizer.kind == "adamw_8bit":
        held = ADAMW_8BIT_STATE
    else:
        return optimizer, 0.0
    return optimizer.model_copy(update={"kind": "adamw"}), ADAMW_STATE - held


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of live tensors made since it was entered: how many there are
    `now`, and the `peak`.
    """

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
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, torch.Tensor):
                self._count(one)
        return made
