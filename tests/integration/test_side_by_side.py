"""Runs, recipes and overrides side by side in one store: each run's versions are its own, and equal those of
the same run alone.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from pipeline.store import keys
from tests.integration.project import Project

Overrides = Mapping[str, Any]
QUALITY = [{"quality": "gopher"}, {"quality": "docs", "dedup": {"threshold": 0.5}}]


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A project with a store of its own, in which the recipe has run once."""
    return copied(finished, tmp_path / "project")


def copied(finished: Project, directory: Path) -> Project:
    project = finished.copied(directory)
    assert not reported(project, keys.DEDUP)  # Dagster cannot make its database in two processes at once
    return project


def start(project: Project, overrides: Overrides, job: str) -> "subprocess.Popen[str]":
    config = {"resources": {"workshop": {"config": {"overrides": dict(overrides)}}}}
    path = project.directory / f"{abs(hash(json.dumps(overrides)))}.yaml"
    project.directory.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(config))
    return project.start("-c", str(path), job=job)


def together(project: Project, job: str, runs: Sequence[Overrides], apart: float = 0.0) -> None:
    """Runs the job once with each of the overrides, all at the same time."""
    processes = []
    for overrides in runs:
        processes.append(start(project, overrides, job))
        time.sleep(apart)
    for process in processes:
        _, said = process.communicate(timeout=900)
        assert process.returncode == 0, said


def reported(project: Project, key: str) -> set[str]:
    """The data versions that the runs of a project reported for a key."""
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey(key.split("/")), limit=100).records
        events = [record.asset_materialization for record in records]
        return {(event.tags or {})["dagster/data_version"] for event in events if event}


def shards(project: Project, overrides: Overrides) -> dict[str, str]:
    store = project.store_of(overrides)
    names = [keys.token_shards(corpus["name"]) for corpus in project.recipe["corpora"]]
    return {key: store.current(key).data_version for key in (keys.DEDUP, *names)}


@pytest.mark.slow
def test_two_retokenizations_at_once_publish_each_its_own_shards(project: Project, finished: Project) -> None:
    before = shards(project, {})
    together(project, "retokenize", QUALITY)
    made = [shards(project, overrides) for overrides in QUALITY]
    assert made[0] != made[1]
    for key in made[0]:
        assert reported(project, key) == {versions[key] for versions in made}
    assert shards(project, {}) == before == shards(finished, {})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_runs_interleaved_at_random_equal_the_same_runs_alone(
    finished: Project, tmp_path: Path, number: int
) -> None:
    chance = random.Random(number)
    choices = [
        {"quality": "gopher"},
        {"quality": {"profile": "docs", "min_words": chance.randrange(20, 400)}},
        {"dedup": {"threshold": chance.choice([0.5, 0.6, 0.95])}},
        {"shards": {"validation_fraction": chance.choice([0.05, 0.2])}},
        {"raw": {"part_bytes": chance.choice([50_000, 200_000])}},
        {},
    ]
    pair = chance.sample(choices, 2)
    shared = copied(finished, tmp_path / "shared")
    if chance.random() < 0.3:
        killed = start(shared, pair[0], "retokenize")
        time.sleep(chance.uniform(3, 12))
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
    together(shared, "retokenize", pair, apart=chance.uniform(0, 6))
    for index, overrides in enumerate(pair):
        alone = copied(finished, tmp_path / f"alone{index}")
        together(alone, "retokenize", [overrides])
        assert shards(shared, overrides) == shards(alone, overrides), overrides
