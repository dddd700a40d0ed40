"""A run killed anywhere goes on from the last whole part or checkpoint and ends in the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.integration.project import PATIENCE, ROOT, Project, make_project, until


def half_done(project: Project, key: str) -> Callable[[], bool]:
    """Whether a part of `key` is finished while the version is not."""
    return lambda: any((project.store.root / key).glob(".*.partial/.parts/*.json"))


def trained_a_while(project: Project) -> Callable[[], bool]:
    return lambda: any((project.store.root / "runs").glob("*/checkpoints/step-00000008/manifest.json"))


def trainers(project: Project) -> list[str]:
    """Processes of this project's trainer that are still alive."""
    found = subprocess.run(
        ["pgrep", "-f", f"trainer {project.store.root}"], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


def same_recipe(project: Project, finished: Project) -> Project:
    project.recipe = yaml.safe_load(yaml.safe_dump(finished.recipe))
    return project


@pytest.mark.slow
def test_killed_in_training_it_goes_on_from_the_newest_checkpoint(finished: Project, tmp_path: Path) -> None:
    project = same_recipe(make_project(tmp_path), finished)
    project.run_until(trained_a_while(project))
    until(lambda: not trainers(project), 30, lambda: "the trainer outlived the run that started it")
    project.make()
    assert project.content() == finished.content()


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["corpora/topics/raw", "corpora/stdlib/scrubbed", "corpora/stdlib/signals", "token_shards/topics"]
)
def test_killed_in_a_stage_it_goes_on_from_the_last_whole_part(
    finished: Project, tmp_path: Path, key: str
) -> None:
    project = same_recipe(make_project(tmp_path), finished)
    project.run_until(half_done(project, key))
    assert not [*project.store.newest_first(key)]
    parts = {
        path: path.stat().st_mtime_ns for path in (project.store.root / key).glob(".*.partial/.parts/*.json")
    }
    project.make()
    assert parts
    assert project.content() == finished.content()


@pytest.mark.slow
def test_killed_in_an_evaluation_it_leaves_no_trainer_behind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.yaml")  # read for ever
    code = (
        "from pipeline.steps.training.launcher import run_trainer; "
        f"run_trainer({str(tmp_path / 'config.yaml')!r})"
    )

    def trains() -> bool:
        return (
            subprocess.run(
                ["pgrep", "-f", f"trainer {tmp_path}"], stdout=subprocess.DEVNULL, check=False
            ).returncode
            == 0
        )

    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as run:
        try:
            until(trains, 60)
        finally:
            run.kill()
    until(lambda: not trains(), 10)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_it_saves_and_leaves_nothing_running(
    finished: Project, tmp_path: Path, number: signal.Signals
) -> None:
    project = same_recipe(make_project(tmp_path), finished)
    project.run_until(trained_a_while(project), number)
    assert not trainers(project)
    project.make()
    assert project.content() == finished.content()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("job", ["pretrain", "corpus"])
def test_stopped_while_it_prepares_it_ends_in_one_sentence(
    tmp_path: Path, job: str, number: signal.Signals
) -> None:
    """At a moment of the first seconds after the recipe is read, a new one in each run of the tests, and at
    the latest in the fifth of seven stages, so that no machine is fast enough to train or to end before.
    """
    moment = random.choice([random.uniform(0, 0.5), random.uniform(0.5, 3)])
    project = make_project(tmp_path)
    process = project.start(job=job)
    store = project.home / "store"
    until(store.exists, 60, lambda: "the job reads no recipe")
    stop_at = time.monotonic() + moment
    while time.monotonic() < stop_at and not (store / "corpora/topics/quality").exists():
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60 * PATIENCE)[1]
    if "Exception ignored in" in said:
        pytest.skip("Python was closing an import, where it drops what a signal raises")
    in_a_step = "resulted in failure" in said  # as Dagster then says, which ends with its own status
    assert process.returncode == (1 if in_a_step else 130), (moment, said)
    assert "Traceback" not in said, (moment, said)
    sentence = "stopped: what is complete is kept, run the job again to resume"
    assert said.lower().count(sentence) == 1, (moment, said)
