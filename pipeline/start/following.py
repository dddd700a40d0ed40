"""Follows the training of a job from another process, by the messages of its trainer."""

import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.start.horizon import Standing
from trainer.system.clock import since_boot
from trainer.system.durable import read_json
from trainer.system.errors import TrainerError
from trainer.system.run_history import RunHistory, histories

PAUSED_SECONDS = 20.0  # between two looks: a program that did not run, however busy the machine is
ENOUGH = 0.1  # share of the time for which a training must have run: the pace of seconds is chance


@dataclass
class Following:
    """The training of the recipe `name` over `max_tokens` that begins in `runs` from now on.

    `look` notes what is new. `program_seconds` is what a short program takes on this machine, as it was
    measured before. Once the trainer has started, it is the geometric mean of that and of the time that the
    start took, since one of them alone says little where the load changes. `pace` has the time at which so
    many tokens were done. The seconds in which nothing ran, because the machine slept or somebody stopped
    all of its programs, are `paused` and do not count.
    """

    runs: Path
    name: str
    max_tokens: int
    program_seconds: float
    clock: Callable[[], float] = since_boot
    run: RunHistory | None = None
    pace: list[tuple[float, int]] = field(default_factory=list)
    paused: float = 0.0
    _read: int = 0
    _began: float | None = None  # when the run was first seen, unless its trainer starts during a pause
    _looked: float | None = None
    _before: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Which runs are new does not follow from the time, which may be set back meanwhile.
        self._before = {run.path: _written(run) for run in histories(self.runs)}

    def look(self) -> None:
        now = self.clock()
        pause = now - self._looked if self._looked is not None else 0.0
        self._looked = now
        if pause <= PAUSED_SECONDS:
            self._look(now)
            return
        self._began, each, before = None, self.seconds_a_token, len(self.pace)
        self._look(now)
        # The training may have gone on while this program alone was stopped.
        if each and len(self.pace) >= before:
            done = self.pace[-1][1] - self.pace[before - 1][1]
            if done < pause / each / 2:
                self.pace[:before] = [(at + pause, tokens) for at, tokens in self.pace[:before]]
                self.paused += pause

    def _look(self, now: float) -> None:
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
            new = _written(run) != self._before.get(run.path)
            tokens: int = run.config["training"]["max_tokens"]
            return new and run.config.get("project") == self.name and tokens == self.max_tokens
        return False

    def _take(self, message: dict[str, object], now: float) -> None:
        if message.get("kind") == "start":
            if self._began is not None:
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


def _written(run: RunHistory) -> int:
    """When its trainer was last started, in nanoseconds since 1970; 0 if it is gone."""
    with suppress(OSError):
        return run.directory.config.stat().st_mtime_ns
    return 0
