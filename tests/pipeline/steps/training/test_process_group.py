"""Nothing of what a step starts outlives it."""

import os
from pathlib import Path

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
