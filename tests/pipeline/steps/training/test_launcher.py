"""The recipe says how the trainer is started, and on which machines."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.recipe.launch import LaunchParams
from pipeline.steps.training import remote_agent
from pipeline.steps.training.launcher import launcher
from pipeline.steps.training.process_group import TrainerKilledError
from pipeline.steps.training.ssh_launcher import HostsError

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"nproc_per_node": 2}, "nproc_per_node 2 needs kind: torchrun"),
        ({"hosts": ["a"]}, "hosts needs kind: torchrun"),
        (
            {"kind": "torchrun", "hosts": ["a", "b", "me@a"]},
            "hosts: a is there twice; nproc_per_node says how many processes each has",
        ),
        ({"kind": "torchrun", "hosts": ["-oProxyCommand=x"]}, "'-oProxyCommand=x' is no name of a host"),
    ],
)
def test_several_processes_and_hosts_are_not_started_by_accident(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        LaunchParams.model_validate(settings)


def test_a_host_that_cannot_be_used_is_named_before_anything_starts(tmp_path: Path) -> None:
    started = launcher(LaunchParams(kind="torchrun", hosts=("nobody@host.invalid",)), None)
    with pytest.raises(
        HostsError, match=r"launch\.hosts: nobody@host\.invalid cannot be used: .*host\.invalid"
    ):
        started.run(tmp_path / "config.yaml", {}, lambda: True)


def test_a_killed_trainer_is_told_from_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = launcher(LaunchParams(), None)
    for how, status in (("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", None)):
        monkeypatch.setattr(
            "trainer.system.launch.command",
            lambda *_, how=how: [sys.executable, "-c", f"import os, sys; {how}"],
        )
        if status is None:
            with pytest.raises(TrainerKilledError, match=r"killed by SIGKILL: is there enough memory\?"):
                started.run(tmp_path / "config.yaml", {}, lambda: True)
        else:
            assert started.run(tmp_path / "config.yaml", {}, lambda: True) == status


@pytest.fixture
def tethered(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A command on the other end of a line; it says when it runs and when it is asked to end."""
    code = f"""import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(tmp_path)!r}, "saved").touch(), sys.exit(75)))
pathlib.Path({str(tmp_path)!r}, "runs").touch()
time.sleep(60)"""
    order = remote_agent.Order([sys.executable, "-c", code], {}, 1, 1)
    with subprocess.Popen(
        [sys.executable, "-m", "pipeline.steps.training.remote_agent"], cwd=ROOT, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(vars(order)).encode() + b"\n")
        process.stdin.flush()
        while not (tmp_path / "runs").exists():
            time.sleep(0.02)
        yield process


def test_what_runs_on_a_host_is_asked_to_save_and_end_when_the_line_breaks(
    tethered: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    assert tethered.stdin is not None
    for _ in range(3):
        tethered.stdin.write(b"\n")
        tethered.stdin.flush()
        time.sleep(0.1)
    assert tethered.poll() is None
    tethered.stdin.close()
    assert tethered.wait(timeout=20) == 75
    assert (tmp_path / "saved").exists()
