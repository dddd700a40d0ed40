"""The comparison of runs: figures, settings that differ, curves."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from trainer.run.plot import running_mean
from trainer.system.errors import TrainerError
from trainer.tools.compare import main


def write_run(
    run: Path,
    settings: dict[str, Any],
    losses: list[float],
    speeds: list[float],
    step_tokens: int = 100,
    **recorded: Any,
) -> Path:
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    lines: list[dict[str, Any]] = [
        {
            "kind": "train",
            "step": step,
            "tokens": step * step_tokens,
            "loss": loss,
            "tokens_per_second": speed,
            **recorded,
        }
        for step, (loss, speed) in enumerate(zip(losses, speeds, strict=True), start=1)
    ]
    last = lines[-1]
    lines.append(
        {
            "kind": "evaluation",
            "step": last["step"],
            "tokens": last["tokens"],
            "loss": losses[-1] + 0.1,
            "bits_per_byte": losses[-1] / 2,
        }
    )
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.fixture
def runs(settings: dict[str, Any], tmp_path: Path) -> list[Path]:
    settings["training"]["max_tokens"] = 300
    other = {
        **settings,
        "run_dir": "elsewhere",
        "training": {**settings["training"], "optimizer": {"kind": "adamw", "lr": 0.01}},
    }
    return [
        write_run(tmp_path / "first", settings, [5.0, 4.0, 3.0], [100.0, 50.0, 100.0]),
        write_run(tmp_path / "second", other, [5.0, 3.5], [200.0, 200.0]),
    ]


def test_final_figures_and_only_the_settings_that_differ_are_told(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*map(str, runs), "--plot", str(tmp_path / "both.png")]) == 0
    figures, differing, _ = capsys.readouterr().out.split("\n\n")
    first, second = (line.split() for line in figures.splitlines()[1:])
    # 100 tokens at 100, 50 and 100 a second: 4 seconds.
    assert first == ["first", "300", "100%", "3.0000", "3.1000", "1.5000", "100", "4.0"]
    assert second == ["second", "200", "67%", "3.5000", "3.6000", "1.7500", "200", "1.0"]
    assert [line.split() for line in differing.splitlines()[1:]] == [
        ["training.optimizer.kind", "muon", "adamw"],
        ["training.optimizer.lr", "-", "0.01"],
    ]
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_steps_that_fp16_skipped_are_left_out_of_the_training_loss(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings["training"]["max_tokens"] = 500
    losses = [math.nan, 5.0, math.inf, 4.0, math.nan]
    run = write_run(tmp_path / "run", settings, losses, [100.0] * 5, skipped=True)
    main([str(run), "--plot", str(tmp_path / "run.png")])
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["run", "500", "100%", "4.0000"]
    assert np.allclose(running_mean(np.array(losses), span=1.0), [math.nan, 5, 5, 4, 4], equal_nan=True)


def test_a_corpus_is_compared_with_the_one_of_its_name(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, code = settings["data"]["corpora"]
    fewer = {**settings, "data": {**settings["data"], "corpora": [{**code, "weight": 2}]}}
    runs = [
        write_run(tmp_path / name, config, [3.0], [100.0])
        for name, config in (("both", settings), ("code", fewer))
    ]
    main([*map(str, runs), "--plot", str(tmp_path / "runs.png")])
    differing = capsys.readouterr().out.split("\n\n")[1]
    assert ["data.corpora.code.weight", "1", "2"] in [line.split() for line in differing.splitlines()]
    assert ["data.corpora.prose.weight", "3", "-"] in [line.split() for line in differing.splitlines()]
    assert "data.corpora.code.train" not in differing


def test_the_same_text_in_another_place_is_no_difference(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name in ("here", "there"):
        corpora = [
            {**corpus, "content": "known", "train": [f"{name}/train"]}
            for corpus in settings["data"]["corpora"]
        ]
        config = {
            **settings,
            "data": {**settings["data"], "tokenizer": f"{name}/tokenizer", "corpora": corpora},
        }
        runs.append(write_run(tmp_path / name, config, [3.0], [100.0]))
    main([*map(str, runs), "--plot", str(tmp_path / "runs.png")])
    assert "setting" not in capsys.readouterr().out


def test_runs_of_one_name_are_told_apart_by_their_paths(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write_run(tmp_path / day / "run", settings, [3.0], [100.0]) for day in ("monday", "tuesday")]
    main([*map(str, runs), "--plot", str(tmp_path / "runs.png")])
    told = capsys.readouterr().out
    assert "monday/run" in told
    assert "tuesday/run" in told


def test_a_directory_that_is_no_run_is_named(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(
        TrainerError, match=f"{tmp_path / 'none'}: metrics.jsonl has no steps: not a run directory"
    ):
        main([str(runs[0]), str(tmp_path / "none")])
    (runs[0] / "config.yaml").write_text("{}")
    with pytest.raises(TrainerError, match=r"config\.yaml: cannot be read as the configuration"):
        main([str(runs[0])])
