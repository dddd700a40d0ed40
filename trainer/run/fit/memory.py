"""How much memory training needs: preflight, `micro_batch_size: auto` and `python -m trainer plan` ask here.

A step is measured on fake tensors, which have shapes but no content. They are always on the CPU, so that the
GPU of a plan need not be in this machine: in bf16 SDPA keeps the same tensors for the backward pass there.
What differs on a GPU is calculated: how many logits are computed at a time, and what splitting divides.
"""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from trainer.config import ChatIds, OptimizerConfig, TrainingConfig
from trainer.model.attention import choose_backend, masks_documents
from trainer.model.llama import Llama, padded_vocab_size
from trainer.model.lora import adapt
from trainer.model.loss import CHUNK_LOGITS, MIN_CHUNK_ROWS
from trainer.model.precision import AUTOCAST, autocast, resolve_precision
from trainer.optim import python_class, weight_averaging
from trainer.optim.build import build
from trainer.run.batch import Batch
from trainer.run.objectives import loss_of

# What a process on a CPU holds besides tensors: buffers of libraries, and holes in the heap, which never
# returns memory to the system. Measured on processes of 0.4 to 1.0 GB.
LIBRARY_BYTES, HOLES = 30_000_000, 0.15
AMPLE = 10
FP32, BF16 = 4, 2
CPU = torch.device("cpu")
MEASURED_LEN = 256
# Bytes of AdamW's state for a weight, and of that with moments in 8 bits: with a scale for 256 of them.
ADAMW_STATE, ADAMW_8BIT_STATE = 2 * FP32, 2 * (1 + FP32 / 256)
GATHERED_BLOCKS = 2  # with FSDP: the block at work and the next one
# Of the head with FSDP, which keeps it as the loss makes it from PyTorch 2.15 on.
HEAD_GRADIENT = FP32 if torch.__version__ >= "2.15" else BF16


@dataclass(frozen=True)
class Memory:
    """Bytes in one process without compilation; CUDA's libraries (about 1 GB) and allocator gaps come on top.

    `gathered`: with `dp_shard` the blocks in use, and embedding and head in bf16 with their gradients, of
    which one is reduced at a time, in fp32. `activations`: what a micro-batch keeps for its backward pass.
    `working`: what a step holds for a moment in addition, such as logits. `copy` and `beside` are 0 on a GPU;
    on a CPU they are the copy that a checkpoint is written from, and what is not a tensor. `total` is the
    peak: on a CPU not every part is at its largest then; on a GPU it is their sum.
    """

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int
    working: int
    copy: int
    beside: int
    total: int

    @property
    def lasting(self) -> int:
        """The bytes that stay, however small the batch is."""
        return self.weights + self.gradients + self.optimizer + self.copy

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer state": self.optimizer,
            "gathered weights": self.gathered,
            "activations": self.activations,
            "logits and the like": self.working,
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
    """Copies of the weights in the optimizers' state during a save: the average and those in training."""
    return 2 if training.moving_average else 0


def is_ample(free: int, training: TrainingConfig, vocab_size: int) -> bool:
    """Whether so many bytes are `free` that an estimate, which takes some seconds, would tell nothing: AMPLE
    times all that has a size, as many copies of it as may be held at once.
    """
    model = training.model
    block = 32 * model.d_model + 8 * model.d_ff + 8 * model.n_heads * training.seq_len
    held = (28 + 8 * copies_with_averages(training)) * model.parameters(vocab_size)
    return free > AMPLE * (held + 4 * training.micro_batch_tokens * (model.n_layers * block + 8 * vocab_size))


class _Bytes(NamedTuple):
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
        return type(self)(*(int(a + times * (b - a)) for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Footprint:
    """What a step on a device of kind `device` holds with micro-batches of one and of two windows of
    `measured_len` tokens; each further one adds the same.
    """

    training: TrainingConfig
    vocab_size: int
    device: torch.device
    measured_len: int
    one: _Bytes
    two: _Bytes

    @classmethod
    def measure(cls, training: TrainingConfig, vocab_size: int, processes: int, device: torch.device) -> Self:
        """Measures steps with one and with two layers; each further layer needs what the second does.
        `processes` read samples of their own. Takes some seconds, whatever the size of the model.
        """
        on_cpu = _as_on_gpu(training) if device.type == "cuda" else training
        accumulates = training.micro_batch_size == "auto" or any(
            stage.global_batch_tokens != training.micro_batch_tokens * processes
            for stage in training.curriculum.stages
        )
        one, two = (
            _step(on_cpu, vocab_size, accumulates, windows, layers=1).and_more(
                _step(on_cpu, vocab_size, accumulates, windows, layers=2), training.model.n_layers - 1
            )
            for windows in (1, 2)
        )
        return cls(training, vocab_size, device, on_cpu.seq_len, one, two)

    def memory(self, windows: int | None = None) -> Memory:
        """The memory of micro-batches of so many windows, by default those of the `training`."""
        windows = self.training.micro_batch_windows if windows is None else windows
        tokens = windows * self.training.seq_len
        step = self.one.and_more(self.two, tokens / self.measured_len - 1)
        if self.device.type == "cuda":
            return self._on_gpu(step, tokens)
        weights, gradients, optimizer, activations = step[:4]
        peak = max(step.forward_and_backward, step.update)
        # With an average the copy holds the weights in training too. In the process they take the place of
        # the gradients, which are gone by then.
        trained = weights if self.training.moving_average else 0
        copy = weights + optimizer + trained
        beside = LIBRARY_BYTES + int(HOLES * (peak + copy))
        return Memory(
            weights=weights,
            gradients=gradients,
            optimizer=optimizer,
            gathered=0,
            activations=activations,
            working=max(0, peak - weights - gradients - optimizer - activations),
            copy=copy,
            beside=beside,
            total=peak + copy + beside,
        )

    def _on_gpu(self, step: _Bytes, tokens: int) -> Memory:
        """`tp` and `pp` are taken to split evenly what `dp_shard` does."""
        model, parallel = self.training.model, self.training.parallel
        rows = padded_vocab_size(self.vocab_size)
        shards, head = parallel.dp_shard * parallel.tp * parallel.pp, rows * model.d_model
        activations, gathered = step.activations, 0
        if shards > 1:
            vocabulary = head if model.tie_embeddings else 2 * head
            blocks = step.weights // FP32 - vocabulary
            kept = min(GATHERED_BLOCKS, model.n_layers) if parallel.reshard_after_forward else model.n_layers
            gathered = 2 * BF16 * vocabulary + (FP32 + HEAD_GRADIENT - BF16) * head
            gathered += BF16 * blocks * kept // model.n_layers
            if self.training.activation_checkpointing == "none":
                activations -= BF16 * blocks  # autocast's copies, kept for the backward pass: gathered again
        chunk = min(tokens, max(MIN_CHUNK_ROWS, CHUNK_LOGITS["cuda"] // rows))
        parts = {
            "weights": step.weights // shards,
            "gradients": step.gradients // shards,
            "optimizer": step.optimizer // shards,
            "gathered": gathered,
            "activations": activations,
            # Logits and probabilities in fp32 and bf16, and the head in bf16.
            "working": chunk * rows * 2 * (FP32 + BF16) + BF16 * head,
        }
        return Memory(**parts, copy=0, beside=0, total=sum(parts.values()))


def _as_on_gpu(training: TrainingConfig) -> TrainingConfig:
    """The settings that keep on a CPU what the kernels of a GPU keep. What SDPA keeps grows with the tokens,
    not with their square, so short windows are measured.
    """
    precision = "fp32" if training.precision in ("fp32", "tf32") else "bf16"
    kept = {"precision": precision, "attention": "sdpa", "document_masking": False}
    return training.model_copy(update={**kept, "seq_len": min(training.seq_len, MEASURED_LEN)})


def _step(training: TrainingConfig, vocab_size: int, accumulates: bool, windows: int, layers: int) -> _Bytes:
    """Takes a step with so many windows."""
    measurable, surplus = _measurable(training.optimizer)
    precision = resolve_precision(training.precision, CPU)
    masked = masks_documents(training.document_masking, CPU)
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
            documents = batch.documents if masked else None
            with autocast(precision, CPU):
                # Not named: the hidden states are freed as in a step.
                loss, _ = loss_of(training).sums(
                    model, model(batch.tokens, documents, dropout_keys=keys), batch
                )
            activations = live.now - before
            loss.backward()
            state, peak, update = (
                size - int(surplus * weights // FP32) for size in (state, live.peak, update)
            )
            return _Bytes(weights, gradients, state, activations, peak, update)


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
        tree_map_only(torch.Tensor, self._count, made)
        return made
