"""How much memory training needs: preflight, `micro_batch_size: auto` and `python -m trainer plan` ask here.

A step is measured on the CPU, so that the GPU of a plan need not be in this machine: in bf16 SDPA keeps the
same tensors for the backward pass there.
What differs on a GPU is calculated: how many logits are computed at a time, and what splitting divides.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch

from trainer.config import TrainingConfig
from trainer.model.llama import padded_vocab_size
from trainer.model.loss import CHUNK_LOGITS, MIN_CHUNK_ROWS
from trainer.run.fit.measured_step import FP32, StepBytes, measure_step

# What a process on a CPU holds besides tensors: buffers of libraries, and holes in the heap, which never
# returns memory to the system. Measured on processes of 0.4 to 1.0 GB.
LIBRARY_BYTES, HOLES = 30_000_000, 0.15
AMPLE = 10
BF16 = 2
MEASURED_LEN = 256
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


@dataclass(frozen=True)
class Footprint:
    """What a step on a device of kind `device` holds with micro-batches of one and of two windows of
    `measured_len` tokens; each further one adds the same.
    """

    training: TrainingConfig
    vocab_size: int
    device: torch.device
    measured_len: int
    of_one: StepBytes
    of_two: StepBytes

    @classmethod
    def measure(cls, training: TrainingConfig, vocab_size: int, processes: int, device: torch.device) -> Self:
        """Measures steps with one and with two layers; each further layer needs what the second does.
        `processes` read samples of their own. Takes some seconds, whatever the size of the model.
        """
        on_cpu = _as_on_gpu(training) if device.type == "cuda" else training
        step = partial(
            measure_step, on_cpu, vocab_size, accumulates=_has_several_micro_batches(training, processes)
        )
        of_one, of_two = (
            step(windows=windows, layers=1).and_more(
                step(windows=windows, layers=2), training.model.n_layers - 1
            )
            for windows in (1, 2)
        )
        return cls(training, vocab_size, device, on_cpu.seq_len, of_one, of_two)

    def with_micro_batch(self, windows: int, processes: int) -> Self:
        """The footprint with this number in place of `auto`, for which a step was taken to have several
        micro-batches.
        """
        training = self.training.model_copy(update={"micro_batch_size": windows})
        if _has_several_micro_batches(training, processes):
            return replace(self, training=training)
        return self.measure(training, self.vocab_size, processes, self.device)

    def memory(self, windows: int | None = None) -> Memory:
        """The memory of micro-batches of so many windows, by default those of the `training`."""
        windows = self.training.micro_batch_windows if windows is None else windows
        tokens = windows * self.training.seq_len
        step = self.of_one.and_more(self.of_two, tokens / self.measured_len - 1)
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

    def _on_gpu(self, step: StepBytes, tokens: int) -> Memory:
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


def _has_several_micro_batches(training: TrainingConfig, processes: int) -> bool:
    return training.micro_batch_size == "auto" or any(
        stage.global_batch_tokens != training.micro_batch_tokens * processes
        for stage in training.curriculum.stages
    )


def _as_on_gpu(training: TrainingConfig) -> TrainingConfig:
    """The settings that keep on a CPU what the kernels of a GPU keep. What SDPA keeps grows with the tokens,
    not with their square, so short windows are measured.
    """
    precision = "fp32" if training.precision in ("fp32", "tf32") else "bf16"
    kept = {"precision": precision, "attention": "sdpa", "document_masking": False}
    return training.model_copy(update={**kept, "seq_len": min(training.seq_len, MEASURED_LEN)})
