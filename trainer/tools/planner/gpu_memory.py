"""Memory of one GPU of a plan, by formula. What a run takes on this machine, trainer.run.memory measures by
doing a step.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from trainer.config import ModelConfig
from trainer.model.activation_checkpointing import Recompute
from trainer.model.llama import padded_vocab_size
from trainer.model.loss import CHUNK_LOGITS, MIN_CHUNK_ROWS

Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)
# What each stage of ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054) divides by the number of GPUs; P
# parameters, G GPUs.
FORMULAS: dict[Sharding, str] = {
    "ddp": "4P + 4P + state",
    "zero1": "4P + 4P + state/G",
    "zero2": "4P + 4P/G + state/G",
    "zero3": "(4P + 4P + state)/G + gathered",
}

FP32, BF16 = 4, 2
# Bytes of optimizer state for a weight; Muon's are those of the matrices in blocks, the rest has AdamW's.
# Adafactor's two vectors count for nothing.
STATE_BYTES = {"adamw": 8, "muon": 4, "lion": 4, "sophia": 8, "adamw_8bit": 2, "adafactor": 0}


@dataclass(frozen=True)
class Workload:
    """Micro-batches of `micro_batch_size` windows in bf16 over fp32 weights. `attention` math keeps the
    probabilities of every pair of tokens.
    """

    model: ModelConfig
    vocab_size: int
    seq_len: int
    micro_batch_size: int
    optimizer: str = "adamw"
    attention: Literal["math", "sdpa"] = "sdpa"
    activation_checkpointing: Recompute = "none"

    @property
    def tokens(self) -> int:
        return self.seq_len * self.micro_batch_size

    @property
    def rows(self) -> int:
        return padded_vocab_size(self.vocab_size)

    @property
    def parameters(self) -> int:
        """With the padding of the vocabulary, which takes memory too."""
        return self.model.parameters(self.rows)

    @property
    def vocabulary_parameters(self) -> int:
        """Those of the embedding and the head."""
        return (1 if self.model.tie_embeddings else 2) * self.rows * self.model.d_model

    @property
    def matrices(self) -> int:
        """Weights that are multiplied inside one block."""
        model = self.model
        return (
            2 * model.d_model * (model.n_heads + model.n_kv_heads) * model.head_dim
            + 3 * model.d_model * model.d_ff
        )


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on one GPU. `bf16_weights`: the copies that matrix products read, with zero3 those of the blocks
    at work.

    `gathered`: with zero3 embedding and head, which parallelize leaves whole in fp32 until the backward pass
    ends, and their gradients.
    `logits`: a chunk of them and the gradient of the head. `total` is the moment when all are there, with
    gradients of an earlier micro-batch.
    """

    weights: int
    gradients: int
    optimizer: int
    bf16_weights: int
    gathered: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.bf16_weights
            + self.gathered
            + self.activations
            + self.logits
        )


def gpu_memory(work: Workload, sharding: Sharding = "ddp", gpus: int = 1) -> GpuMemory:
    """Uncompiled; a compiler keeps fewer activations. CUDA's libraries (about 1 GB) and what its allocator
    leaves unused come on top.
    """
    stage = SHARDINGS.index(sharding)
    splits_weights = stage >= 3 and gpus > 1
    return GpuMemory(
        weights=FP32 * work.parameters // (gpus if stage >= 3 else 1),
        gradients=FP32 * work.parameters // (gpus if stage >= 2 else 1),
        optimizer=_state_bytes(work) // (gpus if stage >= 1 else 1),
        bf16_weights=BF16 * (2 if splits_weights else work.model.n_layers) * work.matrices,
        gathered=2 * FP32 * work.vocabulary_parameters if splits_weights else 0,
        activations=_activation_bytes(work),
        logits=_logits_bytes(work),
    )


def largest_micro_batch(work: Workload, sharding: Sharding, gpus: int, memory: int) -> int:
    """The largest power of two whose micro-batch fits in `memory` bytes; 0 when a single window does not."""
    size = 1
    while gpu_memory(replace(work, micro_batch_size=size), sharding, gpus).total <= memory:
        size *= 2
    return size // 2


def _state_bytes(work: Workload) -> int:
    if work.optimizer != "muon":
        return STATE_BYTES[work.optimizer] * work.parameters
    hidden = work.model.n_layers * work.matrices
    return STATE_BYTES["muon"] * hidden + STATE_BYTES["adamw"] * (work.parameters - hidden)


def _activation_bytes(work: Workload) -> int:
    """What is kept of all blocks, one of them in full while it is computed again; the last norm and the
    gradient of its result.
    """
    again = 0 if work.activation_checkpointing == "none" else _block_bytes(work)
    return (
        work.model.n_layers * kept_block_bytes(work)
        + again
        + work.tokens * work.model.d_model * (2 * FP32 + BF16)
    )


def kept_block_bytes(work: Workload) -> int:
    """What one block keeps for the backward pass: all, or its input and perhaps the results of its products
    and of SDPA.
    """
    if work.activation_checkpointing == "none":
        return _block_bytes(work)
    model = work.model
    kept = FP32 * model.d_model
    if work.activation_checkpointing == "selective":
        queries, keys = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
        kept += BF16 * (queries + 2 * keys + 2 * model.d_model + 2 * model.d_ff)
        kept += BF16 * queries + FP32 * model.n_heads if work.attention == "sdpa" else 0
    return work.tokens * kept


def _block_bytes(work: Workload) -> int:
    """What autograd keeps of one block: inputs of norms (and what they make of them), of products, of
    attention, of the gate.
    """
    model = work.model
    queries, keys = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    norms = 2 * FP32 * (2 * model.d_model + (queries + keys if model.qk_norm else 0))
    projections = BF16 * (2 * model.d_model + queries)
    per_head = BF16 * work.seq_len if work.attention == "math" else FP32
    attention = BF16 * (queries + 2 * keys) + model.n_heads * per_head
    gate = BF16 * 4 * model.d_ff
    rotary = 4 * BF16 * model.head_dim * work.seq_len
    return work.tokens * (norms + projections + attention + gate) + rotary


def _logits_bytes(work: Workload) -> int:
    """A chunk of logits and of their probabilities in fp32 and in bf16, the head in bf16 and its gradient."""
    chunk = min(work.tokens, max(MIN_CHUNK_ROWS, CHUNK_LOGITS["cuda"] // work.rows))
    return chunk * work.rows * 2 * (FP32 + BF16) + work.rows * work.model.d_model * (BF16 + FP32)
