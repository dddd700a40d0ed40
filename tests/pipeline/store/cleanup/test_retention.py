"""Old training runs go with everything made from them; the newest, those in progress and bases never do."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import main
from pipeline.reports.comparison import HeldOutText
from pipeline.steps.lineage.checkpoints import checkpoint
from pipeline.steps.training import plan
from pipeline.store import keys, last_versions
from pipeline.store.cleanup import gc
from pipeline.store.cleanup.old_runs import MADE_FROM_RUN, Limits, old_runs, training_runs
from pipeline.store.last_versions import LastVersions, RecipeName
from pipeline.store.manifest import File, Part
from pipeline.store.store import Store
from pipeline.store.training_runs import CheckpointGoneError, checkpoint_path
from pipeline.store.work import Work
from tests.pipeline.steps.corpora import TEXTS, prepare
from tests.pipeline.steps.training.test_plan import finish, make_shards, recipe
from trainer.config import load_run_config
from trainer.system.durable import write_atomically
from trainer.system.run_history import RunHistory

WEIGHTS = 50_000  # bytes of a checkpoint and of an export
DAYS_AGO = 40


def trained(store: Store, seed: int, exported: bool = True, **training: Any) -> plan.PlannedRun:
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


def old(store: Store, limits: Limits) -> list[str]:
    """The names of the runs that the limits do not keep."""
    return [run.directory.name for run in old_runs(store, training_runs(store), limits)]


def enforce(store: Store, limits: Limits) -> list[str]:
    """What goes after an export."""
    return [item.place for item in gc.retirable(store, limits) if gc.retire(store, item)]


def name(run: plan.PlannedRun) -> str:
    return run.config.run_dir.name


def test_old_runs_go_with_everything_made_from_them_and_lineage_still_answers(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = runs = [trained(store, seed) for seed in (1, 2, 3)]
    only = store.root / first.config.lineage["assets"]["dedup"]["path"]
    before = gc.bytes_below([store.root])
    for command in (["gc", "--keep", "2"], ["disk", "--keep", "2"]):
        assert main(command) == 0
        said = capsys.readouterr().out
        assert name(first) in said and "recipe mine, exported" in said
    assert gc.bytes_below([store.root]) == before
    assert main(["gc", "--keep", "2", "--delete"]) == 0
    assert before - gc.bytes_below([store.root]) > 2 * WEIGHTS and only.exists()
    for key in MADE_FROM_RUN:
        assert len(list((store.root / key).glob("*/manifest.json"))) == 2
    assert {path.name for path in (store.root / "runs").iterdir()} == {name(run) for run in runs[1:]}
    found = checkpoint(store, f"{first.name}-00000024")
    assert not found.saved and found.lineage["recipe"]["training"]["seed"] == 1
    with pytest.raises(CheckpointGoneError, match="its training run was removed"):
        checkpoint_path(store, f"{first.name}-00000032")
    capsys.readouterr()
    for gone in (first.name, f"{first.name}-00000032"):
        assert main(["summary", "--model", gone]) == 2
        assert f"{gone} is not on disk: its training run was removed by `gc`" in capsys.readouterr().err
    assert main(["gc", "--keep", "2"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_the_evaluations_of_a_removed_runs_checkpoints_go_with_it_and_so_does_what_names_them(
    tmp_path: Path, store: Store
) -> None:
    runs = [trained(store, seed) for seed in (1, 2)]
    used = LastVersions(store.files, RecipeName("mine", str(tmp_path / "recipe.yaml")))
    for run in runs:
        key = keys.checkpoint_evaluation(f"{run.name}-00000032")
        with store.making(Work(key, "test", {}, {})) as draft:
            write_atomically(draft.path / "evaluation.json", "{}")
            part = Part(key, "test", {"scores": File.of(draft.path / "evaluation.json", draft.path)})
            used.use(key, draft.publish([part]).path.name)
    enforce(store, Limits(runs=1))
    left = f"{runs[1].name}-00000032"
    assert [path.name for path in (store.root / keys.CHECKPOINT_EVALUATION).iterdir()] == [left]
    assert [path.name for path in store.root.glob("recipes/*/checkpoint_evaluation/*")] == [left]


def test_no_record_names_a_version_of_a_removed_run(tmp_path: Path, store: Store) -> None:
    for seed in (1, 2):
        trained(store, seed)
        changed = RecipeName(f"mine-{seed}", str(tmp_path / "recipe.yaml"), {"training.seed": seed})
        for key in MADE_FROM_RUN:
            LastVersions(store.files, changed).use(key, next(store.newest_first(key)).path.name)
    before = set(last_versions.recorded(store.files))
    enforce(store, Limits(runs=1))
    after = set(last_versions.recorded(store.files))
    assert len(before - after) == len(MADE_FROM_RUN)
    assert all((store.root / key / name).exists() for key, name in after)


def test_data_that_only_removed_runs_name_goes_with_them(store: Store, tmp_path: Path) -> None:
    first = trained(store, 1)
    only = store.root / first.config.lineage["assets"]["token_shards/first"]["path"]
    later = Store(store.root)
    prepare(later, tmp_path / "first.jsonl", TEXTS[:9])
    make_shards(later, recipe("first"))
    trained(later, 2)
    assert not any(only in item.paths for item in gc.find(later))
    garbage = gc.find(later, Limits(runs=1))
    assert gc.remove(later, garbage) == garbage and not only.exists() and not first.config.run_dir.exists()


def test_the_newest_run_of_each_recipe_and_the_one_that_it_used_last_stay(store: Store) -> None:
    first, _newest = trained(store, 1), trained(store, 2)
    assert old(store, Limits(1)) == [name(first)]
    used_last = LastVersions(store.files, RecipeName("mine-12345678", "mine"))
    used_last.use(keys.PRETRAINED_MODEL, first.work.fingerprint[:16])
    assert old(store, Limits(1)) == []


def test_a_run_in_progress_stays(store: Store) -> None:
    first, idle, new = trained(store, 1, exported=False), trained(store, 2), trained(store, 3)
    assert old(store, Limits(1)) == [name(idle), name(first)]
    garbage = next(item for item in gc.retirable(store, Limits(1)) if item.run == first.config.run_dir)
    with (first.config.run_dir / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert old(store, Limits(1)) == [name(idle)]
        assert gc.remove(store, [garbage]) == [] and first.config.run_dir.exists()
    for run in (first, new):  # written a moment ago, perhaps waiting for its evaluation
        os.utime(run.config.run_dir / "config.yaml")
    assert name(first) not in old(store, Limits(1))


def test_weights_that_a_kept_run_started_from_stay(store: Store) -> None:
    base, other, newest = trained(store, 1), trained(store, 2), trained(store, 3)
    config = newest.config.run_dir / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["training"]["pretrained"] = {
        "path": str(base.config.run_dir / "checkpoints/step-00000032/hf"),
        "repo": None,
    }
    config.write_text(yaml.safe_dump(settings))
    assert old(store, Limits(1)) == [name(other)]
    assert old(store, Limits(1, needed=(other.config.run_dir / "checkpoints",))) == []
    moved = store.root.rename(store.root.with_name("moved"))
    assert old(Store(moved), Limits(1)) == [name(other)]


@pytest.mark.parametrize("placed", [Path.rename, shutil.copytree], ids=["moved", "copied"])
def test_a_run_of_a_moved_or_copied_store_reads_the_shards_of_that_store(
    store: Store, placed: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    run = trained(store, 1)
    was, now = store.root, tmp_path / "elsewhere" / "store"
    now.parent.mkdir()
    placed(was, now)
    directory = now / keys.RUNS / run.config.run_dir.name
    config, raw = load_run_config(directory / "config.yaml"), RunHistory(directory).config
    for data in (config.data.model_dump(mode="json"), raw["data"]):
        (corpus,) = data["corpora"]
        for prefix in (*corpus["train"], *corpus["validation"], data["tokenizer"]):
            assert Path(prefix).is_relative_to(now) and Path(prefix).parent.is_dir()
    assert None not in HeldOutText.of(raw).corpora["first"]  # the shards were read


def test_files_beside_a_store_stay_where_they_are(store: Store, tmp_path: Path) -> None:
    run = trained(store, 1)
    outside = tmp_path / "weights" / "hf"
    outside.mkdir(parents=True)
    config = run.config.run_dir / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["training"]["pretrained"] = {"path": str(outside), "repo": None}
    config.write_text(yaml.safe_dump(settings))
    moved = store.root.rename(tmp_path / "moved") / keys.RUNS / run.config.run_dir.name
    assert load_run_config(moved / "config.yaml").training.pretrained.path == outside  # type: ignore[union-attr]


def test_an_export_whose_run_was_deleted_by_hand_is_found(store: Store) -> None:
    first, _new = trained(store, 1), trained(store, 2)
    shutil.rmtree(first.config.run_dir)
    (found,) = gc.retirable(store, Limits(1))
    assert found.run == first.config.run_dir and found.why == "recipe mine, exported"
    assert gc.retire(store, found)
    assert len(list((store.root / keys.EXPORTED_MODEL).glob("*/manifest.json"))) == 1


def test_a_recipes_retention_removes_runs_and_checkpoints_after_an_export(store: Store) -> None:
    runs = [trained(store, seed) for seed in (1, 2, 3)]
    assert enforce(store, Limits(recipe="mine")) == enforce(store, Limits(1, 1, "another")) == []
    assert len(enforce(store, Limits(2, 1, "mine"))) == 3
    assert not runs[0].config.run_dir.exists()
    for run in runs[1:]:
        left = list((run.config.run_dir / "checkpoints").iterdir())
        assert [path.name for path in left] == ["step-00000032"]
        assert plan.finished(store, run.work)


def test_checkpoints_that_are_kept_for_good_stay(store: Store) -> None:
    every = {"every_tokens": 4096, "keep_last": 2, "keep_every_tokens": 24 * 512}
    run = trained(store, 1, checkpoint=every)
    assert enforce(store, Limits(None, 1, "mine")) == []
    assert len(list((run.config.run_dir / "checkpoints").iterdir())) == 2


def test_a_pinned_checkpoint_stays_with_its_run_until_it_is_pinned_no_more(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [trained(store, seed) for seed in (1, 2, 3)]
    pinned = f"{name(runs[0])[:8]}-00000024"
    assert main(["keep", pinned]) == 0
    assert main(["keep", f"{name(runs[2])[:8]}-00000032"]) == 0
    assert len(enforce(store, Limits(1, 1))) == 2
    assert not runs[1].config.run_dir.exists()
    assert checkpoint_path(store, pinned).exists()
    assert main(["keep", f"{name(runs[2])[:8]}-00000024"]) == 2
    assert "steps of the run that are: 32" in capsys.readouterr().err
    assert main(["keep", "--no", pinned]) == 0
    assert capsys.readouterr().out.endswith(": none\n")
    assert enforce(store, Limits(1, 1)) and not runs[0].config.run_dir.exists()


def test_the_disk_table_adds_up_and_says_what_names_each_part(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(store, 1)
    uses = gc.uses(store)
    assert sum(use.bytes for use in uses) == gc.bytes_below([store.root])
    mine = next(use for use in uses if use.what == f"runs/{name(run)}")
    assert mine.bytes > 2 * WEIGHTS and mine.named_by == "recipe mine, exported"
    assert main(["disk"]) == 0
    said = capsys.readouterr().out
    assert f"runs/{name(run)}" in said and "token_shards/first" in said and "are free" in said


def test_a_checkpoint_that_is_not_there_is_refused_with_the_reason(store: Store) -> None:
    run = trained(store, 1).config.run_dir
    alike = run.with_name(f"{run.name[:15]}{'1' if run.name.endswith('0') else '0'}")
    gone = f"{run.name}-00000008"
    for named, says in (
        (gone, "`checkpoint.keep_last` sets how many stay"),
        ("nosuch", "checkpoint 'nosuch' is not on disk: neither a run nor a checkpoint of one"),
        ("0123abcd-00000008", f"no run of this name in {run.parent}"),
    ):
        with pytest.raises(CheckpointGoneError) as refused:
            checkpoint_path(store, named)
        assert says in str(refused.value)
        assert ("keep_last" in str(refused.value)) == (named == gone)
        assert "00000032" in str(refused.value)  # which there are
    shutil.copytree(run, alike)
    with pytest.raises(CheckpointGoneError, match="add digits"):
        checkpoint_path(store, run.name[:15])


def test_no_run_at_all_is_refused(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gc", "--keep", "0"]) == 2
    assert "--keep 0: must be at least 1" in capsys.readouterr().err
