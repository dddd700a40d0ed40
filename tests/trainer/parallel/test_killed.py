"""A process that dies takes the others with it, and all go on from the newest checkpoint, without anyone's help."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs import ROOT, outcome, write_config
from trainer import launch, metrics

KILLS = 10


@pytest.mark.slow
def test_a_run_whose_processes_are_killed_ends_by_itself_in_the_same_bytes(settings: dict[str, Any], tmp_path: Path) -> None:
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    chooser = random.Random(seed)
    settings["training"] |= {"max_tokens": 120 * 256, "optimizer": {"kind": "adamw"}, "parallel": {"dp_shard": 2}}
    assert torchrun_of(settings, tmp_path / "whole").wait(timeout=300) == 0

    torchrun = torchrun_of(settings, tmp_path / "run")
    steps = sorted(chooser.sample(range(1, 120), KILLS))
    before = 0
    while steps and torchrun.poll() is None:
        # Not before the processes started last have got somewhere.
        trains = written(tmp_path / "run") != before
        if trains and logged(tmp_path / "run") >= steps[0] and len(workers := children(torchrun.pid)) == 2:
            os.kill(chooser.choice(workers), signal.SIGKILL)
            steps.pop(0)
            while set(workers) & set(children(torchrun.pid)):
                time.sleep(0.05)
            before = written(tmp_path / "run")
        time.sleep(0.002)
    assert torchrun.wait(timeout=300) == 0, stderr_of(tmp_path / "run").read_text()
    assert steps == []
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def torchrun_of(settings: dict[str, Any], run_dir: Path) -> subprocess.Popen[bytes]:
    command = launch.command(write_config(settings, run_dir.with_suffix(".yaml"), run_dir), processes=2, restarts=KILLS)
    with stderr_of(run_dir).open("w") as said:  # more than fits in a pipe
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **launch.environment(1)}, stderr=said)


def stderr_of(run_dir: Path) -> Path:
    return run_dir.with_suffix(".stderr")


def written(run_dir: Path) -> int:
    """The size of the metrics: it changes with the first step after a start."""
    path = run_dir / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def logged(run_dir: Path) -> int:
    records = metrics.read(run_dir / "metrics.jsonl")
    return int(records[-1]["step"]) if records else 0


def children(process: int) -> list[int]:
    """Trainers that torchrun has started, not yet collected ones left out."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(process)], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid, state in (line.split() for line in found.splitlines()) if not state.startswith("Z")]
