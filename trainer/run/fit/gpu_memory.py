"""The memory of one GPU in a plan, for GPUs that need not be in this machine.

As in preflight, a step is measured on fake tensors (trainer.run.fit.memory): on the CPU in bf16 with SDPA,
whose kernel keeps the same tensors for the backward pass as those of GPUs. Two things differ on GPUs and are
calculated here: how many logits are computed at a time, and what `dp_shard` splits. `tp` and `pp` are not
supported.
"""

from dataclasses import astuple, dataclass
from typing import Self

import torch

from trainer.config import TrainingConfig
from trainer.model.llama import padded_vocab_size
from trainer.model.loss import CHUNK_LOGITS, MIN_CHUNK_ROWS
from trainer.run.fit.memory import Memory, estimate

FP32, BF16 = 4, 2
GATHERED_BLOCKS = 2  # with FSDP: the block at work and the next one


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on one GPU without compilation; CUDA's libraries (about 1 GB) and allocator gaps come on top.

    `gathered`: with `dp_shard` the blocks in use, and embedding and head in bf16 with their gradients, of
    which one is reduced at a time, in fp32. `logits`: one chunk with its probabilities. `total` is the
    sum at the moment when all are in memory, with gradients of an earlier micro-batch.
    """

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(astuple(self))


@dataclass(frozen=True)
class Footprint:
    """What a step holds with micro-batches of one and of two windows; each further window adds the same."""

    training: TrainingConfig
    vocab_size: int
    one: Memory
    two: Memory

    @classmethod
    def measure(cls, training: TrainingConfig, vocab_size: int) -> Self:
        """Takes a few seconds, whatever the size of the model."""
        as_on_gpu = {
            "precision": "bf16",
            "attention": "sdpa",
            "document_masking": False,
            "model": training.model.model_copy(update={"attention_sinks": False}),  # SDPA does not have them
        }
        one, two = (
            estimate(
                training.model_copy(update={**as_on_gpu, "micro_batch_size": size}),
                vocab_size,
                processes=1,
                device=torch.device("cpu"),
            )
            for size in (1, 2)
        )
        return cls(training, vocab_size, one, two)

    def on_gpu(self, micro_batch_size: int, shards: int = 1) -> GpuMemory:
        """One of `shards` GPUs that split weights, gradients and optimizer state (`dp_shard`); 1 is `ddp`."""
        one, model, rows = self.one, self.training.model, padded_vocab_size(self.vocab_size)
        optimizer = one.optimizer
        if self.training.optimizer.kind == "adamw_8bit":
            optimizer -= 3 * one.weights // 2  # two moments of one byte each, measured as fp32
        activations = one.activations + (micro_batch_size - 1) * (self.two.activations - one.activations)
        gathered = 0
        if shards > 1:
            head = rows * model.d_model
            vocabulary = head if model.tie_embeddings else 2 * head
            blocks = one.weights // FP32 - vocabulary
            gathered = 2 * BF16 * vocabulary + FP32 * head
            gathered += BF16 * blocks * min(GATHERED_BLOCKS, model.n_layers) // model.n_layers
            if self.training.activation_checkpointing == "none":
                activations -= (
                    BF16 * blocks
                )  # autocast's copies for the backward pass: FSDP gathers them again
        window_rows = micro_batch_size * self.training.seq_len
        chunk = min(window_rows, max(MIN_CHUNK_ROWS, CHUNK_LOGITS["cuda"] // rows))
        return GpuMemory(
            weights=one.weights // shards,
            gradients=one.gradients // shards,
            optimizer=optimizer // shards,
            gathered=gathered,
            activations=activations,
            # Logits and probabilities in fp32 and bf16, and the head in bf16.
            logits=chunk * rows * 2 * (FP32 + BF16) + BF16 * rows * model.d_model,
        )

    def largest_micro_batch(self, shards: int, memory: int) -> int:
        """The largest power of two that fits in `memory` bytes; 0 when not even a single window does."""
        size = 1
        while self.on_gpu(size, shards).total <= memory:
            size *= 2
        return size // 2
