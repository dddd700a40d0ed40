"""Twenty kills of run, trainer and daemon: nothing stays running or half published, the next run is right."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.assets.operations.orphaned_runs import process_of
from pipeline.store import last_versions
from tests.integration.project import ROOT, Project, make_project, until
from tests.journeys.test_stopped import same_recipe, trainers
from trainer.checkpoint import publish

KILLS = ["run"] * 12 + ["trainer"] * 4 + ["daemon"] * 3 + ["launched run"]

pytestmark = pytest.mark.slow


def processes(project: Project) -> dict[int, str]:
    """Every process that was started for this project, by its environment."""
    found = {}
    wanted = f"DAGSTER_HOME={project.home}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    return found


def check_nothing_is_half_published(project: Project) -> None:
    store = project.store
    for key, name in last_versions.recorded(store.files):
        version = store.open(key, name)
        assert all(file.is_whole(version.path) for file in version.written), version.path
    for directory in store.root.glob("runs/*/checkpoints"):
        for checkpoint in publish.existing(directory):
            publish.verify(checkpoint)


def kill_the_run(project: Project, chance: random.Random) -> None:
    process = project.start()
    time.sleep(chance.uniform(1, 15))
    process.kill()
    process.communicate(timeout=60)


def kill_the_trainer(project: Project, chance: random.Random) -> None:
    """The run goes on by itself."""
    process = project.start()
    until(lambda: bool(trainers(project)) or process.poll() is not None, 120)
    time.sleep(chance.uniform(0, 4))
    for number in trainers(project):
        os.kill(int(number), signal.SIGKILL)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 0, said


def kill_the_daemon(project: Project, chance: random.Random) -> None:
    """The run that it was to launch, or had launched, ends all the same, under the next one."""
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        launched = queued(project, instance)
        with project.serving("dagster-daemon", "run") as first:
            time.sleep(chance.uniform(0, 20))
            first.kill()
        with project.serving("dagster-daemon", "run"):
            until(
                succeeded(instance, launched),
                300,
                lambda: [(run.run_id, run.status) for run in instance.get_runs()],
            )


def kill_what_the_daemon_launched(project: Project, chance: random.Random) -> None:
    """The daemon notices, and starts it again."""
    with (
        dg.DagsterInstance.from_config(str(project.home)) as instance,
        project.serving("dagster-daemon", "run"),
    ):
        launched = queued(project, instance)

        def claimed() -> str | None:
            run = instance.get_run_by_id(launched)
            return process_of(run) if run else None

        until(lambda: claimed() is not None, 120)
        time.sleep(chance.uniform(0, 8))
        process = claimed()
        assert process is not None
        os.kill(int(process.split()[3]), signal.SIGKILL)
        until(
            succeeded(instance, launched),
            300,
            lambda: [(run.run_id, run.status) for run in instance.get_runs()],
        )


def queued(project: Project, instance: dg.DagsterInstance) -> str:
    """`dagster job launch`: the run's id."""
    launch = [
        str(Path(sys.executable).with_name("dagster")),
        "job",
        "launch",
        "-j",
        "pretrain",
        "-m",
        "pipeline.definitions",
    ]
    subprocess.run(launch, cwd=ROOT, env=project.environment(), capture_output=True, check=True, timeout=120)
    return instance.get_runs(dg.RunsFilter(job_name="pretrain"), limit=1)[0].run_id


def succeeded(instance: dg.DagsterInstance, launched: str) -> Callable[[], bool]:
    """Whether a run, or one that was started again for it, came to its end."""

    def looked() -> bool:
        attempts = [run for run in instance.get_runs() if launched in (run.run_id, run.root_run_id)]
        return any(run.status is dg.DagsterRunStatus.SUCCESS for run in attempts)

    return looked


KILLERS = {
    "run": kill_the_run,
    "trainer": kill_the_trainer,
    "daemon": kill_the_daemon,
    "launched run": kill_what_the_daemon_launched,
}


def test_twenty_kills_at_random_moments(finished: Project, tmp_path: Path) -> None:
    seed = int(os.environ.get("GROUNDWORK_SEED", time.time()))
    print(f"GROUNDWORK_SEED={seed}")
    chance = random.Random(seed)
    project = same_recipe(make_project(tmp_path), finished)
    project.recipe["training"]["samples"] = {"prompts": []}  # a sample takes a process of its own
    for number, target in enumerate(chance.sample(KILLS, len(KILLS))):
        # Another seed each time, so that there is always something left to train; the data stages are made
        # once.
        project.recipe["training"]["seed"] = 100 + number
        project.environment()
        KILLERS[target](project, chance)
        until(
            lambda: not processes(project),
            40,
            lambda target=target: f"left after killing the {target}: {processes(project)}",
        )
        check_nothing_is_half_published(project)
    project.recipe = yaml.safe_load(yaml.safe_dump(finished.recipe))
    project.make()
    assert project.content() == finished.content()
