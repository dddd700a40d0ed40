"""The time of a training step from a roofline: operations by the rate of products, bytes by the bandwidth of
memory, and whichever of device and host takes longer.

The bytes of a compiled block are those that its generated kernels move, traced for GPT-2's 124M and Llama
3.2's 1B (`make test-gpu-paths`): each form below meets both within 1%. `tp` and `pp` are taken to split the
work evenly; their traffic is not counted.
"""

from dataclasses import dataclass, fields

from trainer.config import ModelConfig, TrainingConfig
from trainer.model.llama import padded_vocab_size

FP32, BF16 = 4, 2
# Bytes for each token and unit of width that a compiled block reads and writes, forward and backward.
STREAM_BYTES, HEADS_BYTES, FEED_FORWARD_BYTES = 50, 20, 18
LOGIT_BYTES, UNCOMPILED_LOGIT_BYTES = 4.9, 45
# For each weight and micro-batch: its cast to bf16 for each pass, and its gradient added to the last one.
WEIGHT_BYTES = 16
UNCOMPILED = 3.8  # times as many bytes: 23.1 GB against 6.1 for a block of 1B and 16,384 tokens
RECOMPUTED_BYTES = {"none": 1.0, "selective": 479 / 372, "full": 501 / 372}
RECOMPUTED_PRODUCTS = {"none": 1.0, "selective": 1.0, "full": 4 / 3}
# For each weight: weight, gradient and two moments are read, three are written, and the gradient is clipped.
UPDATE_BYTES = 36


@dataclass(frozen=True)
class Rates:
    """What one device does in a second.

    `products`: operations of the model's matrix products. `attention`: those that the causal order leaves of
    attention. `memory`: bytes that passes over activations read and write. `link`: bytes to other devices.
    `host`: seconds for which the host is busy with the launches of a block, forward and backward.
    """

    products: float
    attention: float
    memory: float
    link: float
    host: float = 0.0


@dataclass(frozen=True)
class Step:
    """Seconds of one step on each device, by what takes them. `passes`: over activations and weights, those
    of the loss apart. `collectives`: what is not hidden behind computing.
    """

    products: float
    attention: float
    passes: float
    loss: float
    optimizer: float
    collectives: float
    host: float
    tokens: int  # on all devices together

    @property
    def seconds(self) -> float:
        return max(self.host, sum(self.of_the_device.values()))

    @property
    def of_the_device(self) -> dict[str, float]:
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("host", "tokens")
        }

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def step(
    training: TrainingConfig,
    vocab_size: int,
    rates: Rates,
    devices: int,
    blocks_are_compiled: bool,
    loss_is_compiled: bool,
) -> Step:
    """A step of `training`, of at least a micro-batch on each device."""
    model, parallel = training.model, training.parallel
    split, rows = parallel.tp * parallel.pp, training.micro_batch_tokens
    copies = max(1, devices // split)
    micro_batches = max(1, round(training.global_batch_tokens / (rows * copies)))
    recompute, tokens = training.activation_checkpointing, micro_batches * rows
    causal = model.flops_per_token(vocab_size, training.seq_len, causal=True)
    products = model.flops_per_token(vocab_size, 0)
    blocks = _block_weights(model) * model.n_layers
    again = RECOMPUTED_PRODUCTS[recompute] - 1
    computed = tokens * (products + again * 6 * blocks) / split
    moved = rows * _block_bytes(model) * RECOMPUTED_BYTES[recompute]
    moved *= 1 if blocks_are_compiled else UNCOMPILED
    a_logit = LOGIT_BYTES if loss_is_compiled else UNCOMPILED_LOGIT_BYTES
    vocabulary = padded_vocab_size(vocab_size) * model.d_model * (1 if model.tie_embeddings else 2)
    weights = WEIGHT_BYTES * (blocks + vocabulary)
    device = {
        "products": computed / rates.products,
        "attention": tokens * (causal - products) * RECOMPUTED_PRODUCTS[recompute] / split / rates.attention,
        "passes": micro_batches * (moved * model.n_layers + weights) / split / rates.memory,
        "loss": tokens * a_logit * padded_vocab_size(vocab_size) / split / rates.memory,
    }
    return Step(
        **device,
        optimizer=_optimizer(training, blocks, vocabulary, copies, split, rates),
        collectives=_collectives(
            training, blocks, vocabulary, copies, micro_batches, sum(device.values()), rates
        ),
        host=micro_batches * model.n_layers * rates.host / parallel.pp,
        tokens=tokens * copies,
    )


def _block_weights(model: ModelConfig) -> int:
    heads = model.n_heads + model.n_kv_heads
    return 2 * model.d_model * heads * model.head_dim + 3 * model.d_model * model.d_ff


def _block_bytes(model: ModelConfig) -> int:
    heads = (model.n_heads + 2 * model.n_kv_heads) * model.head_dim
    return STREAM_BYTES * model.d_model + HEADS_BYTES * heads + FEED_FORWARD_BYTES * model.d_ff


def _optimizer(
    training: TrainingConfig, blocks: int, vocabulary: int, copies: int, split: int, rates: Rates
) -> float:
    """Each of `copies` updates its shard, and orthogonalises its share of the matrices."""
    seconds = UPDATE_BYTES * (blocks + vocabulary) / split / training.parallel.dp_shard / rates.memory
    if training.optimizer.kind != "muon":
        return seconds
    model, operations = training.model, 0
    query, key = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    for width, count in ((query, 2), (key, 2), (model.d_ff, 3)):
        short, long = sorted((model.d_model, width))
        # In each of five iterations the Gram matrix, its square, and their product with the matrix.
        operations += count * 5 * (4 * short**2 * long + 2 * short**3)
    return seconds + model.n_layers * operations / copies / rates.products


def _collectives(
    training: TrainingConfig,
    blocks: int,
    vocabulary: int,
    copies: int,
    micro_batches: int,
    computing: float,
    rates: Rates,
) -> float:
    """`dp_shard` gathers weights in bf16, those of blocks for both passes, and reduces gradients in fp32 in
    each micro-batch, behind computing but for the embedding. Copies add up their gradients once a step.
    """
    shards = training.parallel.dp_shard
    replicas = max(1, copies // shards)
    sent = 2 * (replicas - 1) / replicas * FP32 * (blocks + vocabulary) / shards
    if shards > 1:
        gathers = 2  # a block's weights are freed after its forward pass
        embedding = vocabulary if training.model.tie_embeddings else vocabulary // 2
        around, of_blocks = BF16 + FP32, gathers * BF16 + FP32
        others = of_blocks * blocks + around * (vocabulary - embedding)
        sent_once = micro_batches * (shards - 1) / shards
        sent += max(0.0, sent_once * others - computing * rates.link) + sent_once * around * embedding
    return sent / rates.link
