"""Nodes on a network of their own, under torchrun: what is lost is done again by those that are left, and the
run stays the same run.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import Host, network
from tests.integration.project import until
from tests.trainer.parallel.test_equal import assert_same_run, spread
from tests.trainer.runs import ROOT, write_config
from tests.trainer.trained import trained
from trainer.system import launch
from trainer.system.durable import read_json_lines

# As docs/nodes.md has it, with less patience.
PATIENCE = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"
TIMEOUT_SECONDS = 15


@pytest.fixture
def nodes() -> Iterator[list[Host]]:
    with network(2) as hosts:
        yield hosts


class Job:
    """A run that one or two nodes work on."""

    def __init__(self, settings: dict[str, Any], nodes: list[Host], tmp_path: Path) -> None:
        self.run_dir = tmp_path / "run"
        self.said = tmp_path / "said"
        self._config = write_config(settings, tmp_path / "run.yaml", self.run_dir)
        self._first = nodes[0]
        self.torchruns = [self.start(node) for node in nodes]

    def start(self, node: Host) -> "subprocess.Popen[bytes]":
        """torchrun on a node, by hand."""
        options = ["--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d"]
        options += [f"--rdzv-endpoint={self._first.address}:29400", f"--local-addr={node.address}"]
        options += [f"--rdzv-conf=is_host={int(node == self._first)},{PATIENCE}", "--rdzv-id=run"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *options]
        variables = {**os.environ, **launch.RENDEZVOUS, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return node.start([*torchrun, "-m", "trainer", str(self._config)], variables, self.said)

    def wait_for(self, step: int, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while self.step() < step:
            assert self.torchruns[0].poll() is None and time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.02)

    def step(self) -> int:
        """The last that was logged, going back when a lost step is done again."""
        records = read_json_lines(self.run_dir / "metrics.jsonl")
        return int(records[-1]["step"]) if records else 0

    def starts(self) -> list[str]:
        """With how many processes training started, each time."""
        return re.findall(r"parameters.* on \w+, (\d+) process", self.said.read_text())


@pytest.fixture
def long(settings: dict[str, Any]) -> dict[str, Any]:
    """50 steps, the last with the first node alone."""
    settings = spread(settings)
    settings["training"] |= {
        "checkpoint": {"every_tokens": 10 * 256, "keep_last": 2},
        "parallel": {"timeout_seconds": TIMEOUT_SECONDS},
    }
    return settings


def lose(node: Host) -> None:
    node.kill()


def cut_off(node: Host) -> None:
    node.cut()


@pytest.mark.slow
@pytest.mark.parametrize("harm", [lose, cut_off])
def test_a_run_that_loses_a_node_goes_on_with_the_other_and_is_the_same(
    long: dict[str, Any], nodes: list[Host], tmp_path: Path, harm: Callable[[Host], None]
) -> None:
    trained(long, tmp_path / "whole")
    job = Job(long, nodes, tmp_path)
    job.wait_for(23)
    harm(nodes[1])
    assert job.torchruns[0].wait(timeout=240) == 0, job.said.read_text()
    assert job.starts() == ["2", "1"]
    assert_same_run(tmp_path / "whole", job.run_dir)


@pytest.mark.slow
def test_a_node_that_comes_back_is_taken_in_again(
    long: dict[str, Any], nodes: list[Host], tmp_path: Path
) -> None:
    long["training"]["max_tokens"] *= 20
    job = Job(long, nodes, tmp_path)
    job.wait_for(13)
    nodes[1].kill()
    before = job.step()
    job.wait_for(before + 20)
    again = job.start(nodes[1])
    until(lambda: len(job.starts()) >= 3, 120, job.said.read_text)
    assert job.starts() == ["2", "1", "2"]
    for torchrun in (job.torchruns[0], again):
        torchrun.terminate()
