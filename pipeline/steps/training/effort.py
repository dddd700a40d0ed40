"""How long a training takes, over all its attempts, how fast it was, and what it cost."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.store.manifest import Version
from trainer.system.durable import read_json, write_atomically

NAME = "seconds.json"
HOUR, MINUTE = 3600, 60
REUSED = "reused_tokens"  # among the counts of a trained model: those that another run had trained


@dataclass(frozen=True)
class Effort:
    """What all attempts of a training took together. `usd` is None where the recipe names no price. Of the
    `tokens`, another run had trained `reused`.
    """

    tokens: int
    seconds: float
    usd: float | None
    reused: int = 0

    @classmethod
    def of(cls, model: Version, usd_per_hour: float | None) -> "Effort":
        usd = None if usd_per_hour is None else model.seconds / HOUR * usd_per_hour
        return cls(model.counts["tokens"], model.seconds, usd, model.counts[REUSED])

    @property
    def tokens_per_second(self) -> int:
        return round((self.tokens - self.reused) / max(self.seconds, 1e-3))

    def __str__(self) -> str:
        cost = "" if self.usd is None else f", {self.usd:.2f} USD"
        shared = f" ({self.reused:,} of them trained by another run)" if self.reused else ""
        speed = f"{self.tokens_per_second:,} tokens/s"
        return f"{self.tokens:,} tokens{shared} in {took(self.seconds)}, {speed}{cost}"


def took(seconds: float) -> str:
    """A duration in a unit in which it is more than two: `77.3 s`, `41.0 min`, `5.25 h`."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / MINUTE:.1f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.2f} h"


def spent(run_dir: Path) -> float:
    """The seconds that all attempts of a training have taken so far."""
    path = run_dir / NAME
    return float(read_json(path)) if path.exists() else 0.0


class Stopwatch:
    """Runs from now on, and adds the seconds that earlier attempts saved in the same run directory."""

    def __init__(self, run_dir: Path):
        self._path, self._earlier = run_dir / NAME, spent(run_dir)
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._earlier + time.monotonic() - self._started

    def save(self) -> None:
        """Saves the seconds so far. Call it often: a killed process loses those since the last call."""
        with suppress(OSError):  # a full disk is for the trainer to report
            write_atomically(self._path, json.dumps(round(self.seconds, 1)))
