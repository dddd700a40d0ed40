"""A trace of a few steps, for chrome://tracing or ui.perfetto.dev."""

import logging
from pathlib import Path

from torch.profiler import profile, schedule

from trainer.system.durable import atomic_file

SKIPPED, WARMUP, TRACED = 1, 1, 3

log = logging.getLogger("trainer")


def profiler(directory: Path, step: int) -> profile:
    """Entered at `step` and told of each step's end, it writes `steps-<first>-<last>.json`: every operator,
    and kernels on a GPU.
    """
    first = step + SKIPPED + WARMUP + 1
    path = directory / f"steps-{first}-{first + TRACED - 1}.json"

    def write(trace: profile) -> None:
        with atomic_file(path) as temporary:
            trace.export_chrome_trace(str(temporary))
        log.info("traced %s", path)

    # Without `activities`: all that this build of torch supports.
    return profile(
        schedule=schedule(wait=SKIPPED, warmup=WARMUP, active=TRACED, repeat=1), on_trace_ready=write
    )
