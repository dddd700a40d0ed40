"""The speed of training on the machine at hand, timed on random tokens."""

import time

import torch

from trainer.config import TrainingConfig
from trainer.model.llama import Llama
from trainer.model.precision import LossScale, resolve_precision
from trainer.optim.build import build
from trainer.parallel.world import World
from trainer.run.fit.compiler import compile_blocks, compiles
from trainer.run.resolve import attention_for
from trainer.run.spikes import SpikeDetector
from trainer.run.step import StepContext, add_gradients

TIMES, PATIENCE_SECONDS = 3, 5.0
CPU_TOKENS = 512  # at a time; more do not make the products of a CPU faster


def tokens_per_second(training: TrainingConfig, vocab_size: int, device: torch.device, count: int) -> float:
    """The speed of `count` devices like this one, without the traffic between them. A micro-batch and an
    update are timed with one and with two blocks; each further block takes what the second does.
    """
    timed = training
    if device.type == "cpu":
        seq_len = min(training.seq_len, CPU_TOKENS)
        windows = min(training.micro_batch_windows, CPU_TOKENS // seq_len)
        timed = training.model_copy(update={"seq_len": seq_len, "micro_batch_size": windows})
    (token, update), (token_of_two, update_of_two) = (
        _seconds(timed, vocab_size, device, layers) for layers in (1, 2)
    )
    more = training.model.n_layers - 1
    token += more * max(0.0, token_of_two - token)
    update += more * max(0.0, update_of_two - update)
    # Attention takes more of a token's time in longer windows.
    flops, timed_flops = (
        training.model.flops_per_token(vocab_size, length) for length in (training.seq_len, timed.seq_len)
    )
    return 1 / (token * flops / timed_flops / count + update / training.global_batch_tokens)


def _seconds(
    training: TrainingConfig, vocab_size: int, device: torch.device, layers: int
) -> tuple[float, float]:
    """The fastest micro-batch, forward and backward, for each of its tokens, and the fastest update."""
    shape = training.model.model_copy(update={"n_layers": layers})
    precision, world = resolve_precision(training.precision, device), World(0, 1, device)
    unmasked = training.model_copy(update={"document_masking": False})
    backend = attention_for(unmasked, precision, world)
    kept, dropout = training.activation_checkpointing, training.dropout
    with torch.device("meta"):
        model = Llama(
            shape, vocab_size, training.seq_len, backend, kept, dropout=dropout, precision=precision
        )
    model.materialize(device)
    model.initialize(training.init, training.seed)
    optimizers = build(model, training.optimizer)
    if compiles(training, device):
        compile_blocks(model, training, device)
    context = StepContext(0, training, None, world, LossScale.of(precision), SpikeDetector())
    generator = torch.Generator(device).manual_seed(0)
    sizes = (training.micro_batch_windows, training.seq_len + 1)
    windows = torch.randint(vocab_size, sizes, generator=generator, device=device)
    batches: list[float] = []
    updates: list[float] = []
    while len(batches) < TIMES and sum(batches + updates) < PATIENCE_SECONDS:
        started = _now(device)
        add_gradients(model, context.batch(windows), context)
        computed = _now(device)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        batches.append(computed - started)
        updates.append(_now(device) - computed)
    return min(batches) / training.micro_batch_tokens, min(updates)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
