"""Trainers in processes of their own, and what a run leaves that must be the same however it went."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from trainer.checkpoint import publish
from trainer.system import launch
from trainer.system.durable import read_json_lines

ROOT = Path(__file__).parents[2]
# What depends on the machine and the moment; every other field is the same in a run that was interrupted.
TIMING_FIELDS = ("tokens_per_second", "step_ms", "data_wait_ms", "mfu", "memory_mb")


def start(config: Path, *arguments: str) -> "subprocess.Popen[str]":
    """A trainer in a process of its own, as a user or the pipeline starts it."""
    environment = {**os.environ, **launch.environment(1)}
    return subprocess.Popen(
        [*launch.command(config), *arguments], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )


def printed(code: str, *arguments: str) -> str:
    """What a program prints in the environment of a trainer."""
    command, environment = [sys.executable, "-c", code, *arguments], {**os.environ, **launch.environment(1)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def write_config(settings: dict[str, Any], path: Path, run_dir: Path) -> Path:
    path.write_text(yaml.safe_dump({**settings, "run_dir": str(run_dir)}))
    return path


def history(run_dir: Path) -> list[dict[str, Any]]:
    """Everything the run logged that does not depend on the clock."""
    return [
        {key: value for key, value in record.items() if key not in TIMING_FIELDS}
        for record in read_json_lines(run_dir / "metrics.jsonl")
    ]


def outcome(run_dir: Path) -> tuple[str, bytes, list[dict[str, Any]]]:
    """The last checkpoint's name, its weights and optimizer state, and the history."""
    last = publish.existing(run_dir / "checkpoints")[-1]
    files = [last / "hf/model.safetensors", *sorted(last.glob("optimizer*.safetensors"))]
    return last.name, b"".join(path.read_bytes() for path in files), history(run_dir)


def stopped_at(run_dir: Path, step: int) -> None:
    """As if the run had been killed after so many steps, with its later metrics not yet vouched for."""
    for checkpoint in publish.existing(run_dir / "checkpoints"):
        if publish.step_of(checkpoint) > step:
            shutil.rmtree(checkpoint)
