"""How long a run has trained, over all its attempts."""

import json
import time
from contextlib import suppress
from pathlib import Path

from trainer.system.durable import write_atomically

NAME = "seconds.json"


class Stopwatch:
    """Runs from now on, and adds the seconds that earlier attempts saved in the same run directory."""

    def __init__(self, run_dir: Path):
        self._path = run_dir / NAME
        self._earlier = float(json.loads(self._path.read_text())) if self._path.exists() else 0.0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._earlier + time.monotonic() - self._started

    def save(self) -> None:
        """Saves the seconds so far. Call it often: a killed process loses those since the last call."""
        with suppress(OSError):  # a full disk is for the trainer to report
            write_atomically(self._path, json.dumps(round(self.seconds, 1)))
