"""Trainings of a recipe that differ late share what is trained before, and end in the same bytes as alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pipeline.assets import checkpoints
from pipeline.assets.used_recipe import CHECKPOINT, OWN
from pipeline.cli import main
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.training_runs import run_histories
from tests.integration.project import Project, make_project
from trainer.system.run_history import RunHistory

STEP = 512  # tokens
MIXTURES = {"even": (1, 1), "topics": (4, 1), "stdlib": (1, 4), "more": (1, 6)}


def mixed(topics: float, stdlib: float) -> list[dict[str, Any]]:
    """A fifth of the run on a mixture of its own."""
    return [
        {"name": "trunk", "share": 0.8},
        {"name": "anneal", "weights": {"topics": topics, "stdlib": stdlib}},
    ]


@pytest.fixture(scope="module")
def annealed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A recipe of 40 steps and four variants of its last fifth, all trained."""
    project = make_project(tmp_path_factory.mktemp("annealed"))
    project.recipe["training"] |= {
        "max_tokens": 40 * STEP,
        "schedule": {"kind": "wsd", "warmup_tokens": 2048, "decay_fraction": 0.2},
        "stages": mixed(1, 2),
    }
    project.recipe["variants"] = {
        name: {"training": {"stages": mixed(*weights)}} for name, weights in MIXTURES.items()
    }
    for variant in ("base", *MIXTURES):
        said = project.make("--tags", json.dumps({"dagster/partition": variant}))
        assert ("at step 32 of 40: 16,384 tokens are trained already" in said) == (variant != "base")
    return project


def final(project: Project, variant: str) -> RunHistory:
    store = project.variant_store(variant)
    return RunHistory(plan.result(store, store.current(keys.PRETRAINED_MODEL))["run_dir"])


def weights(project: Project, variant: str) -> bytes:
    store = project.variant_store(variant)
    return (store.current(keys.EXPORTED_MODEL).path / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_five_anneals_train_the_trunk_once(annealed: Project, tmp_path: Path) -> None:
    runs = [final(annealed, variant) for variant in ("base", *MIXTURES)]
    own = sum(run.tokens[-1] - (run.trunks[-1]["tokens"] if run.trunks else 0) for run in runs)
    assert own / (40 * STEP) == pytest.approx(1.8)  # of five trainings
    alone = annealed.copied(tmp_path / "alone")
    shutil.rmtree(alone.home / "store" / "runs")
    for key in (keys.PRETRAINED_MODEL, keys.EVALUATION, keys.EXPORTED_MODEL):
        shutil.rmtree(alone.home / "store" / key)
    status, said = alone.run("--tags", json.dumps({"dagster/partition": "more"}))
    assert status == 0 and "trained already" not in said, said
    assert weights(alone, "more") == weights(annealed, "more")


@pytest.mark.slow
def test_pages_and_commands_say_what_was_shared(
    annealed: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    annealed.enter(monkeypatch)
    trunk, branch = final(annealed, "base"), final(annealed, "even")
    assert branch.trunks == [{"run": trunk.name, "step": 32, "tokens": 32 * STEP}]
    assert main(["compare"]) == 0
    said = capsys.readouterr().out
    assert f"went on from {trunk.name} at step 32, after 16,384 tokens, and trained 4,096 tokens" in said
    assert "In all 36,864 tokens were trained; 65,536 more were shared." in said
    assert main(["lineage", f"{branch.name}-00000040"]) == 0
    assert f"{trunk.name} at step 32, after 16,384 tokens" in capsys.readouterr().out
    assert main(["summary"]) == 0
    with dg.DagsterInstance.get() as instance:
        filters = dg.AssetRecordsFilter(OWN.asset(CHECKPOINT), asset_partitions=[f"{trunk.name}-00000032"])
        (record,) = instance.fetch_materializations(filters, limit=1).records
        assert record.asset_materialization is not None
        named = str(record.asset_materialization.metadata[checkpoints.BRANCHES].value)
        assert len(named.split(", ")) == 4 and branch.name in named
        event = instance.get_latest_materialization_event(dg.AssetKey("pretrained_model"))
        assert event is not None and event.asset_materialization is not None
        assert "went on from" in event.asset_materialization.metadata


@pytest.mark.slow
def test_a_longer_horizon_and_a_stage_more_go_on(annealed: Project, tmp_path: Path) -> None:
    project = annealed.copied(tmp_path / "longer")
    del project.recipe["variants"]
    training = project.recipe["training"]
    training |= {"max_tokens": 48 * STEP}
    training["stages"] = [
        {"name": "trunk", "until_tokens": 32 * STEP},
        {"name": "middle", "until_tokens": 40 * STEP, "weights": {"topics": 1}},
        {"name": "anneal", "weights": {"stdlib": 1}},
    ]
    training["schedule"] |= {"decay_fraction": 1 / 6}
    said = project.make()
    assert "at step 32 of 48: 16,384 tokens are trained already" in said
    histories = {run.name for run in run_histories(project.store)}
    assert len(histories) == 6
