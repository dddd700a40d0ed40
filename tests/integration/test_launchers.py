"""However the recipe starts the trainer, Dagster shows the same and the same is left afterwards."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.steps.training import plan
from pipeline.store import keys
from tests import slurm_cluster
from tests.integration.project import TRAINING, Project, make_project, until
from tests.ray_cluster import RayCluster
from trainer.system.durable import read_json_lines

TOKENS = 65_536


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str, dict[str, Any]], Project]:
    """A project with its tokens ready, whose training lasts for some seconds, launched in this way."""

    def make(name: str, launch: dict[str, Any]) -> Project:
        project = make_project(tmp_path / name)
        often = {
            "checkpoint": {"every_tokens": 4096, "keep_last": 20},
            "samples": {},
            "evaluation": {"every_tokens": TOKENS},
        }
        project.recipe |= {
            "launch": launch,
            "training": {**TRAINING, **often, "micro_batch_size": 4, "max_tokens": TOKENS},
        }
        project.make(job="retokenize")
        return project

    return make


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "launch",
    [{"kind": "torchrun", "nproc_per_node": 2}, {"kind": "command", "command": ["env", "MARK=1", *TORCHRUN]}],
    ids=["torchrun", "command"],
)
def test_a_run_in_two_processes_is_stopped_resumes_and_leaves_no_process(
    make: Callable[[str, dict[str, Any]], Project], launch: dict[str, Any]
) -> None:
    project = make("project", launch)
    for _ in range(2):
        project.run_until(progress(project))
        until(lambda: not trainers(project), 60, lambda: trainers(project))
    project.make()
    assert recorded(project) >= set(range(4096, TOKENS + 1, 4096))  # and those of being stopped
    assert ran_once(project)


@pytest.mark.slow
def test_a_run_on_two_nodes_is_stopped_and_killed_resumes_and_outlives_a_node(
    make: Callable[[str, dict[str, Any]], Project], cluster: RayCluster
) -> None:
    project = make("project", {"kind": "ray", "nodes": 2, "address": cluster.address})
    for number in (signal.SIGTERM, signal.SIGKILL):
        project.run_until(progress(project), number)
        until(lambda: not trainers(project), 60, lambda: trainers(project))
    run = project.start()
    until(progress(project), 120, lambda: run.poll())
    lost = cluster.kill_node()
    cluster.add_node()
    _, said = run.communicate(timeout=900)
    assert run.returncode == 0, said
    assert f"node {lost} was lost" in said
    assert recorded(project) >= set(range(4096, TOKENS + 1, 4096))
    assert ran_once(project)
    assert not trainers(project)


@pytest.mark.slow
def test_a_run_on_two_nodes_of_slurm_saves_when_it_is_stopped_or_killed_and_resumes(
    make: Callable[[str, dict[str, Any]], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking := slurm_cluster.lacking():
        pytest.skip(f"no Slurm: {lacking}")
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-id=mine", "--rdzv-endpoint=127.0.0.1:29400"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--local-addr=127.0.0.1"]
    nodes = ["srun", "--nodes=2", "--ntasks-per-node=1"]
    project = make("project", {"kind": "command", "command": [*nodes, *torchrun, *rendezvous]})
    with slurm_cluster.started() as cluster:
        for name, value in cluster.variables.items():
            monkeypatch.setenv(name, value)
        for number in (signal.SIGTERM, signal.SIGKILL):
            project.run_until(progress(project), number)
            until(lambda: not trainers(project), 60, lambda: trainers(project))
            assert newest(project) in stopped_at(project)
        project.make()
    assert recorded(project) >= set(range(4096, TOKENS + 1, 4096))
    assert ran_once(project)


def stopped_at(project: Project) -> list[int]:
    """The steps at which the trainer saved because it was stopped."""
    (log,) = (project.store.root / "runs").glob("*/log.txt")
    return [int(step) for step in re.findall(r"stopped at step (\d+)", log.read_text())]


def progress(project: Project, steps: int = 16) -> Callable[[], bool]:
    """Whether a checkpoint was saved `steps` after the newest one."""
    wanted = newest(project) + steps
    return lambda: newest(project) >= wanted


def newest(project: Project) -> int:
    saved = (project.store.root / "runs").glob("*/checkpoints/step-*/manifest.json")
    return max((int(path.parent.name.removeprefix("step-")) for path in saved), default=0)


def trainers(project: Project) -> str:
    """Processes that still work on this project."""
    return subprocess.run(
        ["pgrep", "-af", f"trainer.* {project.store.root}"], capture_output=True, text=True, check=False
    ).stdout


def recorded(project: Project) -> set[int]:
    """The tokens of each checkpoint that Dagster shows."""
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey("checkpoint"), limit=100).records
        return {
            record.asset_materialization.metadata["tokens"].value
            for record in records
            if record.asset_materialization
        }


def ran_once(project: Project) -> bool:
    """Each step is in the history once, in order, whoever died in between."""
    run_dir = plan.result(project.store, project.store.current(keys.PRETRAINED_MODEL))["run_dir"]
    steps = [
        record["step"] for record in read_json_lines(run_dir / "metrics.jsonl") if record["kind"] == "train"
    ]
    return steps == sorted(set(steps)) and steps[-1] == TOKENS // TRAINING["global_batch_tokens"]
