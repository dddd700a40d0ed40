"""Compiles the kernels while a first run reads its text, in two processes.

The first call of a kernel compiles it, half a minute for all of them on one core. What was compiled is kept
beside the code, so this happens once on a machine. Scrubbing takes half of the time and comes first, so one
process compiles that and the run waits for it. The other compiles the kernels of the later stages.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from time import time as since_1970

from pipeline.stages import compiled
from trainer.system import terminal
from trainer.system.signals import stop_with_parent

STAGES = Path(compiled.__file__).parent
SCRUBBING, LATER = "scrubbing", "later"

_processes: dict[str, subprocess.Popen[bytes]] = {}


def announce() -> None:
    """Lets this process say from now on when it compiles kernels."""
    compiled.announced = _compiling


def _compiling(stage: str) -> terminal.Activity:
    """Shows, while it is entered, that the kernels of a stage are compiled."""
    return terminal.doing(f"compiling kernels: {stage} (first run on this machine only)")


@cache
def start() -> None:
    """Starts both once, to end with the present process, unless kernels of this code were compiled before."""
    cache = Path(os.environ.get("NUMBA_CACHE_DIR") or STAGES)
    if os.access(cache, os.W_OK) and not _compiled(cache):
        _processes.update({kernels: _started(kernels) for kernels in (SCRUBBING, LATER)})


def _compiled(cache: Path) -> bool:
    """Whether a kernel was compiled since a module was last changed, with which all kernels become others."""
    times = (module.stat().st_mtime for module in STAGES.rglob("*.py"))
    changed = max((time for time in times if time < since_1970()), default=0.0)  # clocks may be wrong
    return any(kernel.stat().st_mtime > changed for kernel in cache.rglob("*.nbi"))


def wait_for_scrubbing() -> None:
    """Returns when no process compiles scrubbing any more, whether or not it did."""
    _wait_for(SCRUBBING, "pii")


def wait() -> None:
    """Returns when no process compiles any more."""
    wait_for_scrubbing()
    _wait_for(LATER, "quality, dedup, tokenizer")


def _wait_for(kernels: str, stages: str) -> None:
    with _compiling(stages):
        if process := _processes.get(kernels):
            process.wait()


def _started(kernels: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipeline.steps.compile_kernels", kernels]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=stop_with_parent)
