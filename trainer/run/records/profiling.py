"""A trace of a few steps, for chrome://tracing or ui.perfetto.dev."""

import logging
from pathlib import Path

from torch.profiler import profile, schedule

from trainer.system.durable import atomic_file

SKIPPED, WARMUP, TRACED = 1, 1, 3

log = logging.getLogger("trainer")


def profiler(directory: Path, step: int) -> profile:
    """A profiler to enter at `step` and to step after each step. It writes `steps-<first>-<last>.json` with
    every operator, and the kernels on a GPU.
    """
    first = step + SKIPPED + WARMUP + 1
    path = directory / f"steps-{first}-{first + TRACED - 1}.json"

    def write(trace: profile) -> None:
        with atomic_file(path) as temporary:
            trace.export_chrome_trace(str(temporary))
        log.info("traced %s", path)

    # Without `activities` it records all that this build of torch supports.
    return profile(
        schedule=schedule(wait=SKIPPED, warmup=WARMUP, active=TRACED, repeat=1), on_trace_ready=write
    )
