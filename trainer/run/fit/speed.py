"""The speed of training on this machine, measured on the steps of a run of which nothing stays."""

import statistics
import time

import torch

from trainer.config import RunConfig
from trainer.data.loader import Prefetcher
from trainer.parallel.world import join, leave
from trainer.run.build import build_session
from trainer.run.fit.preflight import dry_run

WARM_UP_STEPS = 2
SECONDS = 5.0


def tokens_per_second(config: RunConfig) -> float:
    """Tokens per second in the median step of the first ones, after two that are not counted. Raises
    TrainerError if the run cannot start.
    """
    world = join(config.training.parallel)
    session = build_session(config, world)
    dry_run(session)
    batches = Prefetcher(session.data, world.data_rank, world.data_size)
    seconds: list[float] = []
    try:
        ended = time.perf_counter()
        while not session.is_complete and sum(seconds[WARM_UP_STEPS:]) < SECONDS:
            session.take_step(torch.from_numpy(batches.batch(session.step)).to(world.device))
            # From end to end: when a step returns, a GPU still updates the weights.
            started, ended = ended, time.perf_counter()
            seconds.append(ended - started)
    finally:
        batches.close()
        leave()
    return config.training.global_batch_tokens / statistics.median(seconds[WARM_UP_STEPS:] or seconds)
