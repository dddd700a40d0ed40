"""`python -m trainer plan`, as it is typed."""

import re
from pathlib import Path

import pytest
import yaml

from trainer.config import ModelConfig
from trainer.system.errors import TrainerError
from trainer.system.gpus import GPUS
from trainer.tools.planner.cli import main
from trainer.tools.planner.plan import DAY, Machine, Run, best_run
from trainer.tools.planner.shape import shaped

MACHINE = Machine(GPUS["h100"], gpus=8, mfu=0.4, price=3.0)
LLAMA_7B = ModelConfig(n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32, d_ff=11008)


def test_time_and_cost_follow_from_the_operations() -> None:
    run = Run(MACHINE, LLAMA_7B, vocab_size=32_000, seq_len=4096, tokens=1e12)
    # 6 x (6.74 B less 131 M embeddings that are only looked up) + 12 x 32 layers x 4096 x 4096 for attention.
    assert run.flops == pytest.approx(1e12 * (6 * 6.607e9 + 6.442e9), rel=1e-3)
    assert run.seconds == pytest.approx(run.flops / (8 * 989e12 * 0.4))
    assert run.gpu_hours == pytest.approx(run.seconds * 8 / 3600)
    assert run.cost == pytest.approx(3 * run.gpu_hours)


@pytest.mark.parametrize("parameters", [3e7, 1.71e8, 1e9, 7e9, 7e10])
def test_a_count_becomes_a_shape_that_the_trainer_accepts(parameters: float) -> None:
    model = shaped(parameters, vocab_size=50_000)
    assert model.parameters(50_000) == pytest.approx(parameters, rel=0.05)
    assert model.head_dim in (64, 128)


def test_a_budget_is_spent_and_no_other_size_would_do_better_with_it() -> None:
    run = best_run(MACHINE, MACHINE.seconds_for(5000), vocab_size=50_000, seq_len=2048)
    assert run.cost == pytest.approx(5000)
    for factor in (0.5, 2):
        other = Run(MACHINE, shaped(factor * run.parameters, 50_000), 50_000, 2048, 1).within(run.seconds)
        assert other.cost == pytest.approx(5000)
        assert other.expected_loss > run.expected_loss


def test_a_named_model_is_planned_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["--params", "7b", "--gpus", "8", "--gpu", "h100"]) == 0
    told = capsys.readouterr().out
    for heading in ("Time ", "Cost ", "Loss ", "Optimum ", "GB on a GPU"):
        assert heading in told
    ddp, split = (line.split() for line in told.splitlines()[-2:])
    assert ddp[0] == "ddp" and ddp[-2:] == ["no", "none"]
    assert split[:2] == ["dp_shard:", "8"] and int(split[-1]) >= 1


def test_days_limit_the_tokens_of_a_given_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--params", "1.3e9", "--days", "2", "--gpus", "4", "--gpu", "a100"]) == 0
    assert "Time      2.0 days, 192.0 GPU-hours" in capsys.readouterr().out
    run = best_run(MACHINE, 2 * DAY, 50_000, 2048)
    assert run.seconds == pytest.approx(2 * DAY)


def test_a_recipe_is_planned_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = {
        "model": {"n_layers": 2, "d_model": 128, "n_heads": 2, "n_kv_heads": 2, "d_ff": 256},
        "seq_len": 256,
        "global_batch_tokens": 4096,
        "micro_batch_size": 4,
        "max_tokens": 409_600,
        "optimizer": {"kind": "muon"},
        "checkpoint": {"every_tokens": 409_600},
        "evaluation": {"every_tokens": 409_600},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"training": training, "tokenizer": {"vocab_size": 4096}}))
    assert main(["--params", str(path), "--gpus", "1", "--gpu", "l4"]) == 0
    told = capsys.readouterr().out
    assert "vocabulary 4,096" in told and "the plan assumes" not in told
    assert "Tokens    410 k" in told
    assert "muon, micro-batch 4 x 256" in told
    assert "not predicted: the law was fitted to 70 M to 16 B parameters" in told and "Optimum" not in told
    assert "dp_shard" not in told
    path.write_text(yaml.safe_dump({"training": training, "tokenizer": {"from": "gpt2"}}))
    main([str(path)])
    told = capsys.readouterr().out
    assert f"{path} does not set the size of its vocabulary; the plan assumes 50,000" in told
    assert "vocabulary 50,000" in told
    main([str(path), "--vocab-size", "50257"])
    assert "the plan assumes" not in capsys.readouterr().out


def test_a_recipe_that_ships_is_planned_by_its_name_for_the_machine_it_is_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["gpu", "--gpu", "rtx4090"]) == 0
    told = capsys.readouterr().out
    assert "1 x rtx4090" in told and "by a roofline: products 6" in told
    assert re.search(r"at (3|4)\d% MFU \((3|4)\d% with half of the attention\)", told)
    assert "a guess: the law was fitted to 70 M to 16 B parameters and 5 B to 500 B tokens" in told
    assert main(["7b", "--gpu", "h100"]) == 0
    told = capsys.readouterr().out
    assert "8 x h100" in told and "collectives" in told  # its launch starts eight processes


def test_the_cpu_of_this_machine_is_measured_and_no_loss_is_made_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["default", "--gpu", "cpu", "--mfu", "0.5"]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    lines = {
        line.partition(" ")[0]: " ".join(line.split()[1:]) for line in told.splitlines() if line[0] != " "
    }
    assert lines["Machine"].startswith("the CPU of this machine, ") and " GFLOP/s in " in lines["Machine"]
    assert lines["Time"].endswith("evaluations apart") and "GPU" not in lines["Time"]
    assert lines["Loss"].startswith("not predicted")
    assert lines.keys() == {"Model", "Tokens", "Compute", "Machine", "Time", "Memory", "Loss"}


def test_tables_that_do_not_fit_the_terminal_are_turned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["--params", "171m", "--gpus", "8", "--gpu", "h100"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert next(line for line in lines if line.startswith("GB on a GPU")).split()[-3:] == [
        "ddp",
        "dp_shard:",
        "8",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a recipe or --params to plan for a model, or --budget or --days"),
        (
            ["small"],
            "small: no such recipe. Give the path of a YAML file, or the name .*: 7b, curriculum, default",
        ),
        (["tiny", "--params", "1b"], "not both"),
        (["tiny", "--gpu", "cpu", "--gpus", "2"], "--gpus 2 is not for --gpu cpu"),
        (["--budget", "5", "--gpu", "cpu"], "--budget needs a price"),
        (["--days", "0.001", "--gpu", "l4", "--gpus", "1"], "the scaling law does not hold for"),
        (["--params", "big"], "'big' is not a count"),
        (["--params", "1000"], "no model has about 1,000 parameters"),
        (["--params", "none.yaml"], r"none\.yaml: no `training` section can be read"),
        (["--params", "1b", "--mfu", "40"], "share of the peak"),
    ],
)
def test_an_impossible_plan_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(TrainerError, match=message):
        main(arguments)
