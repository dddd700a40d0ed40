"""How fast this machine trains, as `python -m trainer plan` measures it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.start.sizes import SIZES, USUAL, Size
from pipeline.store.errors import PipelineError

MOST_SECONDS = 15.0
KEPT_UP = 0.8  # share of the speed that is left with evaluations, checkpoints and samples
USUAL_PROGRAM_SECONDS = 7.0
ASSUMED_FLOPS = 5e10  # of a machine on which nothing could be measured in that time


class Speed:
    """Tokens per second by size, from the speeds of those that were measured."""

    def __init__(
        self, most_seconds: float = MOST_SECONDS, measure: Callable[..., float | None] | None = None
    ):
        self._until = time.monotonic() + most_seconds
        self._measure = measure or measured
        self._flops: dict[Size, float] = {}
        self.program_seconds = USUAL_PROGRAM_SECONDS  # that a short program takes on this machine

    def of(self, size: Size, vocab_size: int) -> float:
        """The speed of a size, at the FLOPs per second of the measured size next to it."""
        near = min(self._flops, key=lambda one: abs(SIZES.index(one) - SIZES.index(size)), default=None)
        flops = self._flops[near] if near else ASSUMED_FLOPS
        return KEPT_UP * flops / size.model.flops_per_token(vocab_size, size.seq_len)

    def source(self, size: Size) -> str:
        """Where the speed of a size is from, in words."""
        if size in self._flops:
            return "measured on this machine"
        return "estimated from another size" if self._flops else "a guess: nothing could be measured in time"

    def look(self, size: Size = SIZES[USUAL], vocab_size: int = SIZES[USUAL].vocab_size) -> None:
        """Measures a size, if there is time and it was not yet."""
        left = self._until - time.monotonic()
        enough = self.program_seconds if self._flops else 1
        if size not in self._flops and left > enough:
            began = time.monotonic()
            speed = self._measure(size, vocab_size, left)
            if not self._flops:
                self.program_seconds = time.monotonic() - began
            if speed:
                self._flops[size] = speed * size.model.flops_per_token(vocab_size, size.seq_len)


def measured(size: Size, vocab_size: int, most_seconds: float) -> float | None:
    """Tokens per second; None where they cannot be measured in that time. Raises PipelineError."""
    training = {
        "model": size.shape,
        "seq_len": size.seq_len,
        "global_batch_tokens": size.batch,
        "micro_batch_size": min(8, size.batch // size.seq_len),
        "max_tokens": size.batch,
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
    return float(json.loads(done.stdout)["tokens_per_second"])
