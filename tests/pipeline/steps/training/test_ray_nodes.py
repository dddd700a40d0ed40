"""Training on the nodes of a real Ray cluster on this machine."""

import os
import re
import signal
import threading

import pytest

from tests.ray_cluster import RayCluster
from trainer.system.errors import RESUMABLE

ray = pytest.importorskip("ray")

from pipeline.steps.training import ray_nodes  # noqa: E402


class Killed(ray_nodes.Node):
    def endpoint(self, run: object) -> None:  # type: ignore[override]
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_what_is_lost_before_training_begins_is_named_with_what_to_do(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lost_before_training() -> str:
        training = ray_nodes.Training("config.yaml", cluster.address, nodes=2, processes=1, threads=1)
        try:
            assert ray_nodes.train(training, threading.Event()) == RESUMABLE
        finally:
            ray.shutdown()
        (line,) = re.findall("trainer: .*before training began.*\n", capfd.readouterr().err)
        return str(line)

    with monkeypatch.context() as process:
        process.setattr(ray_nodes, "Node", Killed)
        line = lost_before_training()
    assert "a process on a node of the Ray cluster ended (The actor is dead because its worker" in line

    source_files, killed = ray_nodes.source_files, []

    def kill_once() -> dict[str, str]:
        if not killed:
            killed.append(cluster.kill_node())
        return source_files()

    monkeypatch.setattr(ray_nodes, "source_files", kill_once)
    line = lost_before_training()
    assert line.startswith(
        f"trainer: node {killed[0]} of the Ray cluster was lost before training began: the"
    )
