"""Follows the training of a job from another process, by the messages of its trainer."""

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.start.horizon import Standing
from trainer.system.durable import read_json
from trainer.system.errors import TrainerError
from trainer.system.history import RunHistory, histories

ENOUGH = 0.1  # share of the time for which a training must have run: the pace of seconds is chance


@dataclass
class Following:
    """The training of the recipe `name` over `max_tokens` that began in `runs` after `since`, in seconds
    since 1970.

    `look` notes what is new. `program_seconds` is what a short program takes on this machine, as it was
    measured before. Once the trainer has started, it is the geometric mean of that and of the time that the
    start took, since one of them alone says little where the load changes. `pace` has the time at which so
    many tokens were done.
    """

    runs: Path
    name: str
    max_tokens: int
    since: float
    program_seconds: float
    clock: Callable[[], float] = time.monotonic
    run: RunHistory | None = None
    pace: list[tuple[float, int]] = field(default_factory=list)
    _read: int = 0
    _began: float = 0.0

    def look(self) -> None:
        now = self.clock()
        if self.run is None:
            self.run = next(filter(self._is_new, histories(self.runs)), None)
            self._began = now
        if self.run is None:
            return
        with suppress(FileNotFoundError), (self.run.path / "messages.jsonl").open("rb") as file:
            # Another attempt of the trainer begins the file anew.
            file.seek(self._read if self._read <= os.fstat(file.fileno()).st_size else 0)
            while (line := file.readline()).endswith(b"\n"):
                self._read = file.tell()
                self._take(json.loads(line)["params"].get("payload", {}), now)

    def _is_new(self, run: RunHistory) -> bool:
        with suppress(OSError, TrainerError):
            new = run.directory.config.stat().st_mtime >= self.since
            tokens: int = run.config["training"]["max_tokens"]
            return new and run.config.get("project") == self.name and tokens == self.max_tokens
        return False

    def _take(self, message: dict[str, object], now: float) -> None:
        if message.get("kind") == "start":
            self.program_seconds = math.sqrt(self.program_seconds * (now - self._began))
            self.pace = []
        elif message.get("kind") == "metrics":
            self.pace.append((now, int(str(message["tokens"]))))

    @property
    def seconds_a_token(self) -> float | None:
        """The time that a token took in the second half of the training so far, with evaluations and
        checkpoints.
        """
        if len(self.pace) < 3:
            return None
        (began, _), (now, tokens) = self.pace[0], self.pace[-1]
        then, before = next(one for one in reversed(self.pace) if one[0] <= (began + now) / 2)
        return (now - then) / (tokens - before)

    def standing(self, *, left: float, given: float, programs: float) -> Standing | None:
        """How the training stands, once it has run for long enough to tell."""
        each = self.seconds_a_token
        if each is None or self.clock() - self.pace[0][0] < ENOUGH * given:
            return None
        at, tokens = self.pace[-1]
        return Standing(
            tokens + (self.clock() - at) / each, each, self.program_seconds, left, given, programs
        )

    @property
    def saved_tokens(self) -> int:
        """How many tokens the newest checkpoint on disk has seen."""
        saved = self.run.checkpoints().values() if self.run else ()
        return max((read_json(path / "state.json")["tokens"] for path in saved), default=0)
