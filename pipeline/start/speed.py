"""How fast this machine trains, as `python -m trainer plan` measures it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.start.sizes import SIZES, USUAL, Size
from pipeline.store.errors import PipelineError

MOST_SECONDS = 40.0  # an idle machine takes ten; on a busy one, waiting costs less than a guess
KEPT_UP = 0.8  # share of the speed that is left with evaluations, checkpoints and samples
USUAL_PROGRAM_SECONDS = 7.0
# Of a machine on which nothing could be measured in that time.
ASSUMED_FLOPS, ASSUMED_FLOPS_OF_GPU = 5e10, 2e12
GPU_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, the one under WSL, AMD's
SCALES = 0.9  # share of the speed of several GPUs that traffic between them leaves


@dataclass(frozen=True)
class Measured:
    """The tokens per second of one device, and how many GPUs there are; without any it is the CPU."""

    tokens_per_second: float
    gpus: int = 0


class Speed:
    """Tokens per second by size, from the speeds of those that were measured."""

    def __init__(
        self, most_seconds: float = MOST_SECONDS, measure: Callable[..., Measured | None] | None = None
    ):
        self._until = time.monotonic() + most_seconds
        self._measure = measure or measured
        self._flops: dict[Size, float] = {}
        self._too_large = len(SIZES)  # from this one on, sizes cannot be trained here
        self.program_seconds = USUAL_PROGRAM_SECONDS  # that a short program takes on this machine
        self.gpus = 0

    def of(self, size: Size, vocab_size: int) -> float:
        """The speed of a size, at the FLOPs per second of the measured size next to it; 0 for one that cannot
        be trained here.
        """
        if SIZES.index(size) >= self._too_large:
            return 0.0
        near = min(self._flops, key=lambda one: abs(SIZES.index(one) - SIZES.index(size)), default=None)
        flops = self._flops[near] if near else ASSUMED_FLOPS_OF_GPU if _has_gpu() else ASSUMED_FLOPS
        flops *= KEPT_UP
        if (count := processes(self.gpus, size.batch // size.seq_len)) > 1:
            flops *= SCALES * count
        return flops / size.model.flops_per_token(vocab_size, size.seq_len)

    def source(self, size: Size) -> str:
        """Where the speed of a size is from, in words."""
        if size in self._flops:
            return "measured on this machine"
        return "estimated from another size" if self._flops else "a guess: nothing could be measured in time"

    def end(self) -> None:
        """Nothing is measured from now on, since the machine has other work."""
        self._until = 0.0

    def look(self, size: Size = SIZES[USUAL], vocab_size: int = SIZES[USUAL].vocab_size) -> bool:
        """Measures a size, if there is time and it was not yet. Whether that changed what is known. Raises
        PipelineError if it cannot be trained, unless it is larger than all that were measured.
        """
        left = self._until - time.monotonic()
        enough = self.program_seconds if self._flops else 1
        if size in self._flops or left <= enough:
            return False
        began = time.monotonic()
        try:
            found = self._measure(size, vocab_size, left)
        except PipelineError:
            if SIZES.index(size) < max(map(SIZES.index, self._flops), default=len(SIZES)):
                raise
            self._too_large = SIZES.index(size)
            return True
        if not self._flops:
            self.program_seconds = time.monotonic() - began
        if found is None:
            return False
        self.gpus = found.gpus
        flops_per_token = size.model.flops_per_token(vocab_size, size.seq_len)
        self._flops[size] = found.tokens_per_second * flops_per_token
        return True


def processes(gpus: int, windows: int) -> int:
    """How many of the `gpus` train together: a power of two, which divides the windows of a batch."""
    most = max(1, min(gpus, windows))
    return 1 << most.bit_length() - 1


def _has_gpu() -> bool:
    """Whether this machine has a driver of GPUs. To ask PyTorch takes seconds."""
    return any(Path(driver).exists() for driver in GPU_DRIVERS)


def measured(size: Size, vocab_size: int, most_seconds: float) -> Measured | None:
    """The speed of one device; None if it cannot be measured in that time. Raises PipelineError."""
    training = {
        "model": size.shape,
        "seq_len": size.seq_len,
        "global_batch_tokens": size.batch,
        "micro_batch_size": "auto" if _has_gpu() else min(8, size.batch // size.seq_len),
        "max_tokens": size.batch,
        # A GPU's takes longer than there is time, and makes training a third faster than what is measured.
        "compile": False,
        "optimizer": {"kind": "muon"},
        "checkpoint": {"every_tokens": size.batch},
        "evaluation": {"every_tokens": size.batch},
    }
    with TemporaryDirectory(prefix="groundwork-") as directory:
        path = Path(directory) / "speed.yaml"
        path.write_text(json.dumps({"tokenizer": {"vocab_size": vocab_size}, "training": training}))
        command = [sys.executable, "-m", "trainer", "plan", str(path), "--json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=most_seconds)
        except subprocess.TimeoutExpired:
            return None
    if done.returncode:
        raise PipelineError(f"the speed of this machine cannot be measured: {done.stderr.strip()[-300:]}")
    figures = json.loads(done.stdout)
    return Measured(figures["tokens_per_second"], figures["gpus"])
