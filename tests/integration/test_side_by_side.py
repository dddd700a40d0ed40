"""Runs of one recipe with other settings at once in one store: each run's versions are its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from pipeline.store import keys
from tests.integration.project import Project

OVERRIDES: list[dict[str, Any]] = [{"quality": "gopher"}, {"quality": "docs", "dedup": {"threshold": 0.5}}]


def reported(project: Project, key: str) -> set[str]:
    """The data versions that the runs of a project reported for a key."""
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey(key.split("/")), limit=100).records
        events = [record.asset_materialization for record in records]
        return {(event.tags or {})["dagster/data_version"] for event in events if event}


def shards(project: Project, overrides: Mapping[str, Any]) -> dict[str, str]:
    store = project.store_of(overrides)
    names = [keys.token_shards(corpus["name"]) for corpus in project.recipe["corpora"]]
    return {key: store.current(key).data_version for key in (keys.DEDUP, *names)}


@pytest.mark.slow
def test_two_retokenizations_at_once_publish_each_its_own_shards(finished: Project, tmp_path: Path) -> None:
    project = finished.copied(tmp_path / "project")
    assert not reported(project, keys.DEDUP)  # Dagster cannot make its database in two processes at once
    before, processes = shards(project, {}), []
    for number, overrides in enumerate(OVERRIDES):
        path = project.directory / f"{number}.yaml"
        path.write_text(yaml.safe_dump({"resources": {"workshop": {"config": {"overrides": overrides}}}}))
        processes.append(project.start("-c", str(path), job="retokenize"))
    for process in processes:
        _, said = process.communicate(timeout=900)
        assert process.returncode == 0, said
    made = [shards(project, overrides) for overrides in OVERRIDES]
    assert made[0] != made[1]
    for key in made[0]:
        assert reported(project, key) == {versions[key] for versions in made}
    assert shards(project, {}) == before == shards(finished, {})
