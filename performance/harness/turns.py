"""Runs contenders in processes side by side, step by step in turns, so that noise affects all alike."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from harness.sidebyside import ROOT, peak_megabytes


class Turns:
    """In the process of a contender. What it prints goes to stderr: stdout is for this."""

    def __init__(self) -> None:
        self._said = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._started: tuple[float, float] | None = None

    def next(self) -> None:
        """Before each step: tells what the last one took, and waits for the turn."""
        if self._started is not None:
            clock, processor = time.perf_counter() - self._started[0], time.process_time() - self._started[1]
            print(
                json.dumps({"seconds": clock, "processor": processor, "peak_mb": round(peak_megabytes())}),
                file=self._said,
                flush=True,
            )
        if not sys.stdin.readline():
            raise SystemExit("the benchmark has ended")
        self._started = time.perf_counter(), time.process_time()


def take_turns(
    contenders: Mapping[str, tuple[Sequence[str], Mapping[str, str]]], warmup: int, turns: int
) -> dict[str, Any]:
    """Name -> (command, variables to add). The seconds of the median step by the clock and by processor time,
    and the peak memory of the process.
    """
    return {
        name: {
            "seconds": round(statistics.median(step["seconds"] for step in taken), 3),
            "processor_seconds": round(statistics.median(step["processor"] for step in taken), 3),
            "peak_mb": taken[-1]["peak_mb"],
        }
        for name, taken in steps_in_turns(contenders, warmup, turns).items()
    }


def steps_in_turns(
    contenders: Mapping[str, tuple[Sequence[str], Mapping[str, str]]], warmup: int, turns: int
) -> dict[str, list[dict[str, float]]]:
    """What each contender said of each of its `turns` steps after the first `warmup`."""
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(_started(command, variables))
            for name, (command, variables) in contenders.items()
        }
        for process in running.values():
            stack.callback(process.kill)
        steps: dict[str, list[dict[str, float]]] = {name: [] for name in running}
        for turn in range(warmup + turns):
            for name, process in running.items():
                said = _step(process)
                if not said:
                    raise SystemExit(f"{name} ended with status {process.wait()}: what it said is above")
                if turn >= warmup:
                    steps[name].append(json.loads(said))
    return steps


def _step(process: subprocess.Popen[str]) -> str:
    """What the process says of its next step; nothing if it has ended."""
    assert process.stdin and process.stdout
    # A process that ended before its turn no longer reads. Unbuffered: closing would write again.
    with suppress(BrokenPipeError):
        os.write(process.stdin.fileno(), b"\n")
    return process.stdout.readline()


def _started(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    environment = os.environ | variables | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'performance'}"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
