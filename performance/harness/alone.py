"""Runs each contender in a process of its own, so that nothing is warm and memory is not shared."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.sidebyside import ROOT, peak_megabytes


def here(call: Callable[[], object]) -> None:
    """In the process of a contender: times one call and prints what `alone` reads. Imports done before are
    not counted: they are not the job.
    """
    started = time.perf_counter()
    said = call()
    seconds = time.perf_counter() - started
    # of the largest process
    peak = max(peak_megabytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000)
    print(json.dumps({"seconds": seconds, "peak_mb": round(peak), "said": said}))


def alone(script: str, *arguments: str) -> dict[str, Any]:
    """What `here` printed in `python script arguments...`."""
    command = [sys.executable, script, *arguments]
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=environment()
    )
    return json.loads(ended.stdout.splitlines()[-1])


def in_turns(script: str, contenders: dict[str, tuple[float, Sequence[str]]], repeats: int) -> dict[str, Any]:
    """Name -> (megabytes, arguments); medians of `repeats` processes each, which take turns. `ratio` is the
    first one's speed over theirs.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, (_, arguments) in contenders.items():
            runs[name].append(alone(script, *arguments))
    found = {}
    for name, (megabytes, _) in contenders.items():
        seconds = statistics.median(run["seconds"] for run in runs[name])
        found[name] = {
            "mb": round(megabytes, 1),
            "seconds": round(seconds, 2),
            "mb_per_s": round(megabytes / seconds, 2),
            "peak_mb": max(run["peak_mb"] for run in runs[name]),
            "said": runs[name][0]["said"],
        }
    first = next(iter(found.values()))["mb_per_s"]
    return {name: facts | {"ratio": round(first / facts["mb_per_s"], 2)} for name, facts in found.items()}


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parents[1]}"}
