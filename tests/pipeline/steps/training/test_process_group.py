"""Nothing of what a step starts outlives it."""

import os
import signal
from pathlib import Path

import pytest

from pipeline.steps.training import process_group
from pipeline.steps.training.process_group import run_group
from tests.integration.project import until


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_process_that_the_command_leaves_behind_is_ended_though_it_ignores_sigterm(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    command = ["sh", "-c", f"trap '' TERM; sleep 600 & echo $! > {left}"]
    assert run_group(command, os.environ, lambda: True) == 0
    process = int(left.read_text())
    until(lambda: not is_running(process), 10)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_group, "GRACE_SECONDS", 0.5)
    ready = tmp_path / "ready"
    command = ["sh", "-c", f"trap '' TERM; touch {ready}; while true; do sleep 0.1; done"]
    assert run_group(command, os.environ, lambda: not ready.exists()) == -signal.SIGKILL
