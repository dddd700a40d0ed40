"""`python -m trainer plan`, as it is typed."""

from pathlib import Path

import pytest
import yaml

from trainer.config import ModelConfig
from trainer.system.errors import TrainerError
from trainer.system.gpus import GPUS
from trainer.tools.planner.cli import main
from trainer.tools.planner.laws import LAWS
from trainer.tools.planner.plan import DAY, Machine, Run, best_run, smaller_models
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
    law = LAWS["epoch"]
    run = best_run(MACHINE, MACHINE.seconds_for(5000), vocab_size=50_000, seq_len=2048, law=law)
    assert run.cost == pytest.approx(5000)
    for factor in (0.5, 2):
        other = Run(MACHINE, shaped(factor * run.parameters, 50_000), 50_000, 2048, 1).within(run.seconds)
        assert other.cost == pytest.approx(5000)
        assert other.expected_loss(law) > run.expected_loss(law)


def test_smaller_models_reach_the_same_loss_with_more_training_until_they_cannot() -> None:
    law = LAWS["epoch"]
    found = smaller_models(7e9, law.best_tokens(7e9), law, shares=(0.75, 0.5, 0.01))
    assert [smaller.parameters for smaller in found] == [5.25e9, 3.5e9]
    for smaller in found:
        assert law.loss(smaller.parameters, smaller.tokens) == pytest.approx(
            law.loss(7e9, law.best_tokens(7e9))
        )
        saved = 2 * (7e9 - smaller.parameters) * smaller.tokens_served
        assert smaller.training_flops == pytest.approx(6 * 7e9 * law.best_tokens(7e9) + saved)


def test_a_named_model_is_planned_in_full_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "plan.png"
    assert main(["--params", "7b", "--gpus", "8", "--gpu", "h100", "--plot", str(picture)]) == 0
    told = capsys.readouterr().out
    for heading in (
        "Time ",
        "Cost ",
        "GB on a GPU",
        "Compute-optimal for this size",
        "Training longer",
        "Same loss, cheaper to serve",
    ):
        assert heading in told
    assert "works as ddp, with `training.parallel: {dp_shard: 8}` as zero3" in told
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_days_limit_the_tokens_of_a_given_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--params", "1.3e9", "--days", "2", "--gpus", "4", "--gpu", "a100"]) == 0
    assert "Time      2.0 days, 192.0 GPU-hours" in capsys.readouterr().out
    run = best_run(MACHINE, 2 * DAY, 50_000, 2048, LAWS["epoch"])
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
    assert "vocabulary 4,096" in told and "assumed, give" not in told
    assert "Tokens    410 k" in told
    assert "muon, micro-batch 4 x 256" in told
    assert "beyond what was fitted" in told
    assert "works as ddp\n" in told
    path.write_text(yaml.safe_dump({"training": training, "tokenizer": {"from": "gpt2"}}))
    main(["--params", str(path)])
    told = capsys.readouterr().out
    assert f"{path} does not say how large its vocabulary is: 50,000 is assumed, give --vocab-size" in told
    assert "vocabulary 50,000" in told
    main(["--params", str(path), "--vocab-size", "50257"])
    assert "assumed, give" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to plan"),
        (["--params", "big"], "'big' is not a count"),
        (["--params", "1000"], "no model has about 1,000 parameters"),
        (["--params", "none.yaml"], r"none\.yaml: no `training` section"),
        (["--params", "1b", "--mfu", "40"], "share of the GPU's peak"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: list[str], message: str) -> None:
    with pytest.raises(TrainerError, match=message):
        main(arguments)
