"""`micro_batch_size: auto`: the windows that a process computes at a time, as many as fit into its memory."""

import logging
import math
from pathlib import Path

import torch

from trainer.config import TrainingConfig
from trainer.parallel.world import World
from trainer.run.fit.hardware import free_memory
from trainer.run.fit.memory import Footprint, is_out_of_memory
from trainer.run.fit.preflight import check_batch
from trainer.run.resolve import Plan
from trainer.run.session import Session, build_session
from trainer.run.step import add_gradients
from trainer.system.durable import read_json
from trainer.system.errors import TrainerError, in_every_process

# Gaps in the allocator, buffers of collectives, and what an optimizer computes with for a moment.
MARGIN = 0.1
# More tokens do not make the products faster, and tensors of more than 2^31 numbers need slower kernels.
MOST_TOKENS = {"cuda": 65_536, "cpu": 4_096}

log = logging.getLogger("trainer")


def fitting(footprint: Footprint, data_size: int, memory: int) -> list[int]:
    """The micro-batches, in windows, that `memory` bytes of a process hold with a margin, by the estimate for
    uncompiled blocks, the largest first; a single window in any case.
    """
    training, room = footprint.training, (1 - MARGIN) * memory
    most = MOST_TOKENS[footprint.device.type] // training.seq_len
    sizes = [
        size for size in _sizes(training, data_size) if size <= most and footprint.memory(size).total <= room
    ]
    return sizes or [1]


def divides(training: TrainingConfig, size: int, data_size: int) -> bool:
    """Whether preflight lets `size` windows pass."""
    try:
        check_batch(training, size, data_size)
    except TrainerError:
        return False
    return True


def _sizes(training: TrainingConfig, data_size: int) -> list[int]:
    """The micro-batches that divide the work of a process, the largest first."""
    tokens = math.gcd(*(stage.global_batch_tokens for stage in training.curriculum.stages))
    windows = tokens // (training.seq_len * data_size)
    return [
        size for size in range(windows, 0, -1) if windows % size == 0 and divides(training, size, data_size)
    ]


def build_fitting(plan: Plan, world: World, checkpoint: Path | None) -> Session:
    """The session at step 0, with a number in place of `auto`. With a `checkpoint` it is the checkpoint's,
    since another one would change the order of sums. Else it is that of the largest micro-batch that fits
    into every process.

    Such a micro-batch is tried: gradients are computed beside as many bytes as the optimizer will hold.
    While memory runs out in any process, the next one of at most half the windows is taken. A split model is
    not tried, since a process that fails would leave the others waiting. Raises TrainerError if not even one
    window fits. A collective.
    """
    training = plan.training
    if training.micro_batch_size != "auto":
        return build_session(plan, world)
    if checkpoint is not None:
        saved = read_json(checkpoint / "lineage.json")["training"]["config"]
        if divides(training, saved["micro_batch_size"], world.data_size):
            return build_session(plan.with_micro_batch(saved["micro_batch_size"]), world)
    memory = world.least(free_memory(world.device))
    vocab_size, data_size = plan.config.data.vocab_size, world.data_size

    def estimated() -> tuple[list[int], int]:
        """The sizes, and the bytes of the optimizer's state in one process."""
        footprint = Footprint.measure(training, vocab_size, data_size, world.device)
        return fitting(footprint, data_size, memory), footprint.memory(1).optimizer

    sizes, optimizer = world.from_main(estimated)
    session, most = build_session(plan, world), sizes[0]
    for size in sizes:
        if size > most:
            continue
        session = session.with_micro_batch(size)
        if training.parallel.splits_model or not world.any(_runs_out(session, optimizer)):
            log.info("micro-batches of %d windows: %s MB are free", size, f"{memory / 1e6:,.0f}")
            return session
        log.warning("a micro-batch of %d windows does not fit: half of it is tried", size)
        most = size // 2
    with in_every_process():
        raise TrainerError(
            f"not even one window of {training.seq_len} tokens fits into {memory / 1e6:,.0f} MB on "
            f"{world.device}; lower training.seq_len, or use a smaller model"
        )


def _runs_out(session: Session, optimizer: int) -> bool:
    """Whether memory runs out for two micro-batches (one, if a step has no more) beside `optimizer` bytes."""
    world = session.world
    rows = session.plan.data.batch(0, world.data_rank, world.data_size)
    windows = torch.from_numpy(rows[: 2 * session.training.micro_batch_windows])
    try:
        state = torch.empty(optimizer, dtype=torch.uint8, device=world.device)
        add_gradients(session.model, session.context.batch(windows.to(world.device)), session.context)
        del state
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return True
    finally:
        session.model.zero_grad(set_to_none=True)
        if world.device.type == "cuda":
            torch.cuda.empty_cache()
    return False
