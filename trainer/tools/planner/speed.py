"""The speed of training on the machine at hand, timed on random tokens."""

import time

import torch

from trainer.config import TrainingConfig
from trainer.model.llama import Llama
from trainer.model.precision import LossScale, resolve
from trainer.optim.build import build
from trainer.parallel.world import World
from trainer.run.fit.compiler import compile_blocks, compiles
from trainer.run.resolve import attention_for
from trainer.run.spikes import SpikeDetector
from trainer.run.step import StepContext, add_gradients

TIMES = 2  # after one that warms up


def tokens_per_second(training: TrainingConfig, vocab_size: int, device: torch.device, count: int) -> float:
    """Of `count` devices like this one, without the traffic between them. A micro-batch and an update are
    timed with one and with two blocks; each further block takes what the second does.
    """
    (batch, update), (batch_of_two, update_of_two) = (
        _seconds(training, vocab_size, device, layers) for layers in (1, 2)
    )
    more = training.model.n_layers - 1
    batch += more * max(0.0, batch_of_two - batch)
    update += more * max(0.0, update_of_two - update)
    batches = max(1, training.global_batch_tokens // (training.micro_batch_tokens * count))
    return count * batches * training.micro_batch_tokens / (batches * batch + update)


def _seconds(
    training: TrainingConfig, vocab_size: int, device: torch.device, layers: int
) -> tuple[float, float]:
    """The fastest micro-batch, forward and backward, and the fastest update of the weights."""
    shape = training.model.model_copy(update={"n_layers": layers})
    precision, world = resolve(training.precision, device), World(0, 1, device)
    unmasked = training.model_copy(update={"document_masking": False})
    backend = attention_for(unmasked, precision, world)
    with torch.device("meta"):
        model = Llama(
            shape,
            vocab_size,
            training.seq_len,
            backend,
            training.activation_checkpointing,
            training.dropout,
            precision,
        )
    model.materialise(device)
    model.initialise(training.init, training.seed)
    optimizers = build(model, training.optimizer)
    if compiles(training, device):
        compile_blocks(model, training, device)
    context = StepContext(0, training, None, world, LossScale.of(precision), SpikeDetector())
    generator = torch.Generator(device).manual_seed(0)
    sizes = (training.micro_batch_windows, training.seq_len + 1)
    windows = torch.randint(vocab_size, sizes, generator=generator, device=device)
    batches, updates = [], []
    for _ in range(1 + TIMES):
        started = _now(device)
        add_gradients(model, context.batch(windows), context)
        computed = _now(device)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        batches.append(computed - started)
        updates.append(_now(device) - computed)
    return min(batches[1:]), min(updates[1:])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
