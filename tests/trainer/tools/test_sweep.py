"""A grid of runs: a directory each; finished runs are left alone, interrupted ones resume."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.config import load_run_config
from trainer.run.loop import DONE, run
from trainer.system.errors import TrainerError
from trainer.tools.sweep import Trial, combinations, configuration, main

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config_path(settings: dict[str, Any], tmp_path: Path) -> Path:
    settings["training"]["optimizer"] = {"kind": "adamw"}
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_every_combination_has_a_directory_named_after_it(config_path: Path, tmp_path: Path) -> None:
    grid = ["training.optimizer.lr=1e-3,0.003", "training.seed=1,2", "training.optimizer.betas=[0.8,0.9]"]
    trials = combinations(config_path, tmp_path / "run", grid)
    assert [trial.name for trial in trials] == [
        f"optimizer.lr={lr},seed={seed},optimizer.betas=_0.8,_0.9_"
        for lr in ("1e-3", "0.003")
        for seed in (1, 2)
    ]
    last = load_run_config(config_path, trials[-1].overrides)
    assert last.run_dir == trials[-1].run_dir == tmp_path / "run" / trials[-1].name
    assert (last.training.optimizer.lr, last.training.seed, last.training.optimizer.betas) == (
        0.003,
        2,
        (0.8, 0.9),
    )


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["training.seed"], "not of the form"),
        (["training.seed="], "not of the form"),
        (["training.seed=[1"], "cannot be read as YAML"),
        (["training.seed=1,1"], "two combinations of the sweep are the same"),
        (["run_dir=a,b"], "a sweep gives each run a run_dir of its own, and cannot sweep over it"),
        (["training.seeds=1,2"], "did you mean 'seed'"),
        (["training.seq_len=32,33"], "not a multiple of seq_len"),
    ],
)
def test_a_grid_with_a_mistake_is_refused_before_anything_runs(
    config_path: Path, tmp_path: Path, grid: list[str], message: str
) -> None:
    with pytest.raises(TrainerError, match=message):
        main([str(config_path), *grid])
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_is_reported_and_finished_runs_are_neither_repeated_nor_mixed_with_other_settings(
    config_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    grid = ["training.optimizer.lr=1e-3,1e30"]
    assert main([str(config_path), *grid]) == 1
    out = capfd.readouterr().out
    assert "Failed: optimizer.lr=1e30\n" in out
    assert "optimizer.lr=1e-3" in out
    assert (tmp_path / "run" / "compare.png").exists()
    metrics = tmp_path / "run" / "optimizer.lr=1e-3" / "metrics.jsonl"
    written = metrics.stat().st_mtime_ns
    assert main([str(config_path), "training.optimizer.lr=1e-3"]) == 0
    config_path.write_text(config_path.read_text().replace("seed: 5", "seed: 6"))
    capfd.readouterr()
    assert main([str(config_path), "training.optimizer.lr=1e-3"]) == 1
    said = capfd.readouterr()
    assert "training.seed: 5 -> 6" in said.err
    assert "Failed: optimizer.lr=1e-3\n" in said.out
    assert metrics.stat().st_mtime_ns == written


def test_a_run_of_the_same_settings_is_found_again_however_a_value_is_spelled(
    config_path: Path, tmp_path: Path
) -> None:
    (first,) = combinations(config_path, tmp_path / "run", ["training.optimizer.lr=1e-3"])
    config = load_run_config(config_path, first.overrides)
    first.run_dir.mkdir(parents=True)
    (first.run_dir / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    (again,) = combinations(config_path, tmp_path / "run", ["training.optimizer.lr=0.001"])
    assert again.run_dir == first.run_dir
    with pytest.raises(TrainerError, match="two combinations of the sweep are the same"):
        combinations(config_path, tmp_path / "run", ["training.optimizer.lr=1e-3,0.001"])


def test_a_sweep_of_a_recipe_leaves_its_finished_run_alone_and_does_not_train_it_again(
    settings: dict[str, Any],
    config_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    recipe, finished = tmp_path / "mine.yaml", tmp_path / "store/runs/6ddca1201f00aa11"
    recipe.write_text(
        yaml.safe_dump({"name": "mine", "corpora": [{"name": "prose"}], "training": settings["training"]})
    )
    with pytest.raises(
        TrainerError, match=r"mine\.yaml: a recipe without a run in .*store/runs\. Run the job"
    ):
        main([str(recipe), "training.seed=5,6"])
    with pytest.raises(TrainerError, match="nothing: neither a file nor a run"):
        main(["nothing", "training.seed=5,6"])
    with pytest.raises(TrainerError, match=r"is not a path: .*File name too long"):
        main(["x" * 5_000, "training.seed=5,6"])
    lineage = {"recipe": {"name": "mine"}}
    config_path.write_text(yaml.safe_dump({**settings, "run_dir": str(finished), "lineage": lineage}))
    assert run(load_run_config(config_path)) == DONE
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    assert main([str(recipe), "training.seed=5,6"]) == 0
    rows = [line.split()[:3] for line in capfd.readouterr().out.splitlines()[1:3]]
    assert rows == [["6ddca120", "3,072", "100%"], ["seed=6", "3,072", "100%"]]
    sweep = finished.with_name("6ddca1201f00aa11-sweep")
    assert sorted(path.name for path in sweep.iterdir()) == ["compare.png", "seed=6", "sweep.yaml"]
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    for named in ("6ddca120", str(finished), str(finished / "config.yaml")):
        assert [trial.run_dir for trial in trials_of(named, ["training.seed=5,6"])] == [
            finished,
            sweep / "seed=6",
        ]
    # a recipe that gives the length in minutes is swept at the length of its run
    longest = {"minutes": 3, "min_tokens": 512, "max_tokens": 3 * settings["training"]["max_tokens"]}
    without = {name: value for name, value in settings["training"].items() if name != "max_tokens"}
    written = {"name": "mine", "corpora": [{"name": "prose"}], "duration": longest, "training": without}
    recipe.write_text(yaml.safe_dump(written))
    assert trials_of(str(recipe), ["training.seed=5"])[0].run_dir == finished


def trials_of(named: str, grid: list[str]) -> list[Trial]:
    config = configuration(named)
    base = load_run_config(config).run_dir
    return combinations(config, base.with_name(f"{base.name}-sweep"), grid, base)


@pytest.mark.slow
def test_a_sweep_that_is_stopped_goes_on_where_it_was(config_path: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "trainer",
        "sweep",
        str(config_path),
        "training.seed=1,2",
        "training.max_tokens=64000",
    ]
    metrics = tmp_path / "run" / "seed=1,max_tokens=64000" / "metrics.jsonl"
    with subprocess.Popen(command, cwd=ROOT) as first:
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") > 5):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 75
    assert not (tmp_path / "run" / "seed=2,max_tokens=64000").exists()
    wide = {**os.environ, "COLUMNS": "300"}
    ended = subprocess.run(
        command, cwd=ROOT, env=wide, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "resumed_from None" not in ended.stderr.split("seed=2")[0]
    assert [line.split()[:3] for line in ended.stdout.splitlines()[1:3]] == [
        [f"seed={seed},max_tokens=64000", "64,000", "100%"] for seed in (1, 2)
    ]
