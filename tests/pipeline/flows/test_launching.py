"""The recipe says how the trainer is started."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from pipeline.flows.launching import LaunchParams


def test_one_process_or_several_under_torchrun() -> None:
    assert LaunchParams().command(Path("c.yaml")) == [sys.executable, "-m", "trainer", "c.yaml"]
    several = LaunchParams(kind="torchrun", nproc_per_node=4)
    assert "--nproc-per-node=4" in several.command(Path("c.yaml"))
    assert several.environment(threads=3)["OMP_NUM_THREADS"] == "3"


def test_several_processes_are_not_started_by_accident() -> None:
    with pytest.raises(ValidationError, match="nproc_per_node 2 needs kind: torchrun"):
        LaunchParams(nproc_per_node=2)
