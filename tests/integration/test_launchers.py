"""The recipe chooses how the trainer is started: what Dagster shows and what is left afterwards are the
same.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.steps.training import plan
from pipeline.store import keys
from tests.hosts import Host, network
from tests.integration.project import TRAINING, Project, until
from trainer.run import metrics

TOKENS = 65_536
SSHD = "/usr/sbin/sshd"


@pytest.fixture
def make(make_project: Callable[[Path], Project], tmp_path: Path) -> Callable[[str, dict[str, Any]], Project]:
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
        status, said = project.run(job="retokenize")
        assert status == 0, said
        return project

    return make


@pytest.mark.slow
def test_a_run_under_torchrun_is_stopped_goes_on_and_leaves_no_process(
    make: Callable[[str, dict[str, Any]], Project],
) -> None:
    project = make("project", {"kind": "torchrun", "nproc_per_node": 2})
    for _ in range(2):
        project.run_until(progress(project))
        until(lambda: not trainers(project), 60, lambda: trainers(project))
    status, said = project.run()
    assert status == 0, said
    assert recorded(project) >= set(range(4096, TOKENS + 1, 4096))  # and those of being stopped
    assert ran_once(project)


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
        ["pgrep", "-af", f"(trainer|tether).* {project.store.root}"],
        capture_output=True,
        text=True,
        check=False,
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
        record["step"] for record in metrics.read(run_dir / "metrics.jsonl") if record["kind"] == "train"
    ]
    return steps == sorted(set(steps)) and steps[-1] == TOKENS // TRAINING["global_batch_tokens"]


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Host]]:
    """Two hosts that let this user in by ssh."""
    if not Path(SSHD).exists():
        pytest.skip("needs openssh-server")
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    shutil.copy(keys / "user.pub", keys / "authorized")
    server = {
        "HostKey": keys / "host",
        "AuthorizedKeysFile": keys / "authorized",
        "StrictModes": "no",
        "PidFile": "none",
        "UsePAM": "no",
    }
    (keys / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in server.items()))
    client = {
        "IdentityFile": keys / "user",
        "UserKnownHostsFile": keys / "known",
        "StrictHostKeyChecking": "no",
        "LogLevel": "ERROR",
    }
    (keys / "ssh_config").write_text("".join(f"{name} {value}\n" for name, value in client.items()))
    ssh = keys / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {keys / "ssh_config"} "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{keys}{os.pathsep}{os.environ['PATH']}")
    Path("/run/sshd").mkdir(exist_ok=True)
    with network(2) as hosts:
        for host in hosts:
            host.start([SSHD, "-D", "-e", "-f", str(keys / "sshd_config")], os.environ, keys / "sshd.log")
            until(
                lambda host=host: (
                    subprocess.run(
                        [ssh, host.address, "true"], check=False, stderr=subprocess.DEVNULL
                    ).returncode
                    == 0
                ),
                20,
            )
        yield hosts


@pytest.mark.slow
def test_a_run_on_two_hosts_ends_with_the_run_that_started_it_and_outlives_the_loss_of_one(
    hosts: list[Host], make: Callable[[str, dict[str, Any]], Project]
) -> None:
    project = make("project", {"kind": "torchrun", "hosts": [host.address for host in hosts]})
    project.run_until(progress(project))
    until(lambda: not trainers(project), 90, lambda: trainers(project))
    run = project.start()
    until(progress(project), 120)
    assert all(len(host.processes()) > 2 for host in hosts)
    hosts[0].kill()  # where the main process and the rendezvous are
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert "going on without it" in said
    assert recorded(project) >= set(range(4096, TOKENS + 1, 4096))  # and those of being stopped
    assert ran_once(project)
    assert not trainers(project)
