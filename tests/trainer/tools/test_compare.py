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


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


def test_final_figures_and_only_the_settings_that_differ_are_told(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*map(str, runs), "--plot", str(tmp_path / "both.png")]) == 0
    figures, differing, _ = capsys.readouterr().out.split("\n\n")
    first, second = (line.split() for line in figures.splitlines()[1:])
    # 100 tokens at 100, 50 and 100 a second: 4 seconds.
    assert first == ["first", "300", "100%", "3.0000", "3.1000", "22.2", "1.5000", "100", "4.0"]
    assert second == ["second", "200", "67%", "3.5000", "3.6000", "36.6", "1.7500", "200", "1.0"]
    assert [line.split() for line in differing.splitlines()[1:]] == [
        ["training.optimizer.kind", "muon", "adamw"],
        ["training.optimizer.lr", "-", "0.01"],
    ]
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_the_tables_fit_the_terminal_and_hashes_keep_their_beginning(
    settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []
    for number in range(3):
        for corpus in settings["data"]["corpora"]:
            corpus["content"] = f"{number}dcc0de" * 9 + "f"
        settings["training"]["max_tokens"] = 300
        name = f"optimizer.lr={number}e-3,schedule.warmup_tokens=1024,seed=1"
        runs.append(write_run(tmp_path / name, settings, [3.0], [100.0]))
    monkeypatch.setenv("COLUMNS", "80")
    main([*map(str, runs), "--plot", str(tmp_path / "runs.png")])
    said = capsys.readouterr().out
    assert max(map(len, said.partition("Curves")[0].splitlines())) <= 80
    assert "3  optimizer.lr=2e-3,schedule.warmup_tokens=1024,seed=1" in said.splitlines()
    assert "data.corpora.code.content   0dcc0de0dcc0  1dcc0de1dcc0  2dcc0de2dcc0" in said.splitlines()
    monkeypatch.setenv("COLUMNS", "60")
    main([*map(str, runs), "--plot", str(tmp_path / "runs.png")])
    said = capsys.readouterr().out
    assert max(map(len, said.partition("Curves")[0].splitlines())) <= 60
    assert "Left out to fit 60 columns: tokens/s, seconds" in said
    assert "data.corpora.code.content\n  1  0dcc0de0dcc0\n  2  1dcc0de1dcc0\n" in said


def test_runs_on_other_held_out_text_or_with_another_tokenizer_are_marked(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, (_, code) = settings["data"], settings["data"]["corpora"]
    configs = {
        "all": settings,
        "code": {**settings, "data": {**data, "corpora": [code]}},
        "retokenized": {**settings, "data": {**data, "tokenizer_sha256": "e" * 64}},
        "longer": {**settings, "training": {**settings["training"], "max_tokens": 9999}},
    }
    runs = [write_run(tmp_path / name, config, [3.0], [100.0]) for name, config in configs.items()]
    main([*map(str, runs), "--plot", str(tmp_path / "runs.png")])
    said = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[-2:] for line in said.splitlines()[1:5]}
    ours = data["tokenizer_sha256"][:8]
    assert rows == {
        "all": ["A", ours],
        "code": ["B", ours],
        "retokenized": ["A", "e" * 8],
        "longer": ["A", ours],
    }
    sentences = " ".join(said.partition("\n\n")[0].split())
    assert f"B: {code['validation_bytes']:,} bytes of code" in sentences
    assert "only between runs with the same letter" in sentences and "The tokenizers differ." in sentences
    main([str(runs[0]), str(runs[3]), "--plot", str(tmp_path / "runs.png")])
    assert "differs" not in capsys.readouterr().out


def test_runs_and_checkpoints_are_found_by_their_names_in_the_ui(
    settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings["training"]["max_tokens"] = 300
    for name in ("6ddca1201f00aa11", "6ddcffff1f00aa11"):
        write_run(tmp_path / "store/runs" / name, settings, [5.0, 4.0, 3.0], [100.0] * 3)
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    main(["6ddca120", "6ddca120-00000002", "--plot", str(tmp_path / "runs.png")])
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert rows == [["6ddca120", "300", "100%"], ["6ddca120-00000002", "200", "67%"]]
    with pytest.raises(TrainerError, match="may be 6ddca1201f00aa11 or 6ddcffff1f00aa11: add digits"):
        main(["6ddc"])
    with pytest.raises(TrainerError, match=r"no run of this name in .*store/runs .*6ddc"):
        main(["0123abcd"])


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
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainerError, match=r"file/a\.png: the curves cannot be written there"):
        main([str(runs[0]), "--plot", str(tmp_path / "file" / "a.png")])
    (runs[0] / "config.yaml").write_text("{}")
    with pytest.raises(TrainerError, match=r"config\.yaml: cannot be read as the configuration"):
        main([str(runs[0])])


def test_a_plot_never_takes_the_place_of_another_file(runs: list[Path]) -> None:
    metrics = runs[0] / "metrics.jsonl"
    before = metrics.read_bytes()
    with pytest.raises(TrainerError, match=r"name a file that ends in \.png"):
        main([str(runs[0]), "--plot", str(metrics)])
    assert metrics.read_bytes() == before
