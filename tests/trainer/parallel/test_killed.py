"""A process that dies takes the others with it, and all go on from the newest checkpoint by themselves."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.project import until
from tests.trainer.runs import ROOT, outcome, write_config
from trainer.system import launch
from trainer.system.durable import read_json_lines

BY_HAND = "--nproc-per-node=2", "--max-restarts=3"


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "by_hand"), [(10, False), (3, True)], ids=["by the launcher", "by hand"])
def test_a_run_whose_processes_are_killed_ends_by_itself_in_the_same_bytes(
    settings: dict[str, Any], tmp_path: Path, kills: int, by_hand: bool
) -> None:
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    chooser = random.Random(seed)
    settings["training"] |= {"max_tokens": 120 * 256, "optimizer": {"kind": "adamw"}}
    settings["training"]["parallel"] = {"dp_shard": 2}
    assert torchrun_of(settings, tmp_path / "whole").wait(timeout=300) == 0

    torchrun = torchrun_of(settings, tmp_path / "run", kills, by_hand)
    steps = sorted(chooser.sample(range(1, 120), kills))
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


@pytest.mark.slow
def test_when_torchrun_itself_is_killed_its_processes_go(settings: dict[str, Any], tmp_path: Path) -> None:
    settings["training"] |= {"max_tokens": 5000 * 256, "optimizer": {"kind": "adamw"}}
    torchrun = torchrun_of(settings, tmp_path / "run")
    until(lambda: logged(tmp_path / "run") >= 3, 120)
    workers = children(torchrun.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGSTOP)  # the other waits for it
    torchrun.kill()
    torchrun.wait()
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 10)


def torchrun_of(
    settings: dict[str, Any], run_dir: Path, restarts: int = 3, by_hand: bool = False
) -> subprocess.Popen[bytes]:
    config = write_config(settings, run_dir.with_suffix(".yaml"), run_dir)
    command = launch.command(config, processes=2)
    command[command.index(f"--max-restarts={launch.RESTARTS}")] = f"--max-restarts={restarts}"
    if by_hand:
        command = [sys.executable, "-m", "torch.distributed.run", *BY_HAND, "-m", "trainer", str(config)]
    environment = {} if by_hand else launch.environment(1)
    with stderr_of(run_dir).open("w") as said:  # more than fits in a pipe
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=said)


def stderr_of(run_dir: Path) -> Path:
    return run_dir.with_suffix(".stderr")


def written(run_dir: Path) -> int:
    """The size of the metrics: it changes with the first step after a start."""
    path = run_dir / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def logged(run_dir: Path) -> int:
    records = read_json_lines(run_dir / "metrics.jsonl")
    return int(records[-1]["step"]) if records else 0


def children(process: int) -> list[int]:
    """Trainers that torchrun has started, not yet collected ones left out."""
    found = subprocess.run(
        ["ps", "-o", "pid=,stat=", "--ppid", str(process)], capture_output=True, text=True, check=False
    ).stdout
    return [
        int(pid) for pid, state in (line.split() for line in found.splitlines()) if not state.startswith("Z")
    ]
