"""Old training runs go with everything made from them; the newest, those in progress and bases never do."""

import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.steps.lineage.checkpoints import checkpoint
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.cleanup import disk, retention
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import File, Part
from pipeline.store.store import Store
from pipeline.store.training_runs import CheckpointGoneError, checkpoint_path
from pipeline.store.work import Work
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.training.test_plan import finish, make_shards, recipe
from trainer.system.durable import write_atomically

WEIGHTS = 50_000  # bytes of a checkpoint and of an export
DAYS_AGO = 40


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """One corpus up to token shards, and a recipe for the commands."""
    store = Store(tmp_path / "store")
    prepare(store, tmp_path / "first.jsonl", TEXTS[:15])
    make_shards(store, recipe("first"))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    settings = {
        "name": "mine",
        "corpora": [{"name": "first", "source": {"kind": "files", "paths": ["first.jsonl"]}}],
        "tokenizer": {"vocab_size": 400},
        "training": TRAINING,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("GROUNDWORK_RECIPE", str(tmp_path / "recipe.yaml"))
    return store


def trained(store: Store, seed: int, exported: bool = True, **training: Any) -> plan.Run:
    """A finished run, as old as its seed is small, with two checkpoints, evaluated and exported."""
    run = plan.plan(store, recipe("first", seed=seed, **training))
    run.write_config()
    model = finish(store, run)
    steps = [run.config.run_dir / "checkpoints" / f"step-{step:08d}" for step in (24, 32)]
    for step in steps:
        step.mkdir(exist_ok=True)
        (step / "weights").write_bytes(bytes(WEIGHTS))
        (step / "manifest.json").write_text("{}")
    made = [model.path]
    for key in (keys.EVALUATION, keys.EXPORTED_MODEL) if exported else ():
        with store.making(Work(key, "test", {}, {model.key: model.data_version})) as draft:
            write_atomically(draft.path / "lineage.json", json.dumps(run.config.lineage))
            part = Part(key, "test", {"lineage": File.of(draft.path / "lineage.json", draft.path)})
            made.append(draft.publish([part]).path)
    then = time.time() - (DAYS_AGO - seed) * 24 * 3600
    for path in [run.config.run_dir / "config.yaml", *(path / "manifest.json" for path in made)]:
        os.utime(path, (then, then))
    return run


def names(runs: list[retention.TrainingRun]) -> list[str]:
    return [run.name for run in runs]


def test_old_runs_go_with_everything_made_from_them_and_lineage_still_answers(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    old, *_ = runs = [trained(store, seed) for seed in (1, 2, 3)]
    before = disk.bytes_below([store.root])
    assert main(["gc", "--runs", "--keep", "2", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert old.config.run_dir.name in said and runs[1].config.run_dir.name not in said
    assert disk.bytes_below([store.root]) == before
    assert main(["gc", "--runs", "--keep", "2", "--delete"]) == 0
    assert before - disk.bytes_below([store.root]) > 2 * WEIGHTS
    for key in retention.MADE_FROM_RUN:
        assert len(list((store.root / key).glob("*/manifest.json"))) == 2
    assert {path.name for path in (store.root / "runs").iterdir()} == {
        run.config.run_dir.name for run in runs[1:]
    }
    found = checkpoint(store, f"{old.name}-00000024")
    assert not found.saved and found.lineage["recipe"]["training"]["seed"] == 1
    with pytest.raises(CheckpointGoneError, match="its training run was removed"):
        checkpoint_path(store, f"{old.name}-00000032")
    assert main(["gc", "--runs", "--keep", "2"]) == 0
    assert "nothing to remove: each recipe has" in capsys.readouterr().out


def test_the_newest_run_of_each_recipe_and_the_one_that_it_used_last_stay(store: Store) -> None:
    first, _newest = trained(store, 1), trained(store, 2)
    assert names(retention.removable(store, 1)) == [first.config.run_dir.name]
    used_last = LastVersions(store.files, RecipeName("mine-12345678", "mine"))
    used_last.use(keys.PRETRAINED_MODEL, first.work.fingerprint[:16])
    assert retention.removable(store, 1) == []


def test_a_run_in_progress_stays(store: Store) -> None:
    old, idle, new = trained(store, 1, exported=False), trained(store, 2), trained(store, 3)
    assert names(retention.removable(store, 1)) == [idle.config.run_dir.name, old.config.run_dir.name]
    with (old.config.run_dir / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listed = retention.training_runs(store)[-1]
        assert names(retention.removable(store, 1)) == [idle.config.run_dir.name]
        assert not retention.remove(store, listed) and old.config.run_dir.exists()
    for run in (old, new):  # written a moment ago, perhaps waiting for its evaluation
        os.utime(run.config.run_dir / "config.yaml")
    assert old.config.run_dir.name not in names(retention.removable(store, 1))


def test_weights_that_a_kept_run_started_from_stay(store: Store, tmp_path: Path) -> None:
    base, other = trained(store, 1), trained(store, 2)
    _newest = trained(store, 3)
    config = store.root / "runs" / _newest.config.run_dir.name / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["training"]["pretrained"] = {
        "path": str(base.config.run_dir / "checkpoints/step-00000032/hf"),
        "repo": None,
    }
    config.write_text(yaml.safe_dump(settings))
    assert names(retention.removable(store, 1)) == [other.config.run_dir.name]
    needed = [other.config.run_dir / "checkpoints"]
    assert retention.removable(store, 1, needed=needed) == []


def test_an_export_whose_run_was_deleted_by_hand_is_found(store: Store) -> None:
    old, _new = trained(store, 1), trained(store, 2)
    shutil.rmtree(old.config.run_dir)
    (found,) = retention.removable(store, 1)
    assert found.name == old.config.run_dir.name and found.recipe == "mine"
    assert retention.remove(store, found)
    assert len(list((store.root / keys.EXPORTED_MODEL).glob("*/manifest.json"))) == 1


def test_a_recipes_retention_removes_runs_and_checkpoints_after_an_export(store: Store) -> None:
    runs = [trained(store, seed) for seed in (1, 2, 3)]
    assert retention.enforce(store, "mine", None, None) == (0, 0)
    assert retention.enforce(store, "another", 1, 1) == (0, 0)
    assert retention.enforce(store, "mine", 2, 1) == (1, 2)
    for run in runs[1:]:
        left = list((run.config.run_dir / "checkpoints").iterdir())
        assert [path.name for path in left] == ["step-00000032"]
        assert plan.finished(store, run)


def test_checkpoints_that_are_kept_for_good_stay(store: Store) -> None:
    every = {"every_tokens": 4096, "keep_last": 2, "keep_every_tokens": 24 * 512}
    run = trained(store, 1, checkpoint=every)
    assert retention.enforce(store, "mine", None, 1) == (0, 0)
    assert len(list((run.config.run_dir / "checkpoints").iterdir())) == 2


def test_the_disk_table_adds_up_and_says_what_names_each_part(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(store, 1)
    uses = disk.table(store)
    assert sum(use.bytes for use in uses) == disk.bytes_below([store.root])
    mine = next(use for use in uses if use.what == f"runs/{run.config.run_dir.name}")
    assert mine.bytes > 2 * WEIGHTS and mine.named_by == "recipe mine, exported"
    assert main(["disk"]) == 0
    said = capsys.readouterr().out
    assert f"runs/{run.config.run_dir.name}" in said and "token_shards/first" in said and "are free" in said


def test_how_many_runs_stay_must_be_said(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gc", "--runs"]) == 2
    assert "give --keep N, at least 1, or set retention.runs" in capsys.readouterr().err
