"""`python -m trainer plan`, as it is typed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from trainer.config import TrainingConfig
from trainer.run.fit import hardware
from trainer.run.fit.memory import Memory
from trainer.system.errors import TrainerError
from trainer.tools.planner import cli
from trainer.tools.planner.cli import main
from trainer.tools.planner.plan import Machine, Plan

SMALL: dict[str, Any] = {
    "model": {"n_layers": 3, "d_model": 64, "n_heads": 2, "n_kv_heads": 2, "d_ff": 128},
    "seq_len": 64,
    "global_batch_tokens": 512,
    "micro_batch_size": 4,
    "max_tokens": 409_600,
    "optimizer": {"kind": "muon"},
    "checkpoint": {"every_tokens": 409_600},
    "evaluation": {"every_tokens": 409_600},
}


LINES = {"Model", "Tokens", "Compute", "Machine", "Speed", "Time", "Memory", "Loss", "Optimum"}


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """The lines of a plan by their names."""
    assert main(list(arguments)) == 0
    printed = capsys.readouterr()
    text = (printed.err + printed.out).replace("\n          ", " ")
    return {name: rest.strip() for name, _, rest in (line.partition(" ") for line in text.splitlines())}


def test_time_and_cost_follow_from_the_speed() -> None:
    machine = Machine("h100", count=8, flops=989e12, memory=80 * 10**9, price=3.0)
    training, memory = TrainingConfig.model_validate(SMALL), Memory(1, 1, 2, 0, 5, 1, 0, 0, total=10)
    plan = Plan(machine, training, 4096, speed=409_600 / 7200, speed_from="assumed", memory=memory)
    assert plan.seconds == 7200
    assert plan.cost == pytest.approx(2 * 8 * 3)
    assert "48.00 USD for 16.0 hours" in str(plan) and "Time      2.0 hours" in str(plan)


def test_another_size_of_a_recipe_is_planned_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["training.model=7b", "training.seq_len=2048", "training.parallel.dp_shard=8"]
    settings.append("tokenizer.vocab_size=50_000")
    plan = told(capsys, "gpu", *settings, "--gpus", "8", "--gpu", "h100", "--mfu", "0.5")
    assert plan.keys() == {*LINES, "Cost"}
    # 6 x (6.89 B less 205 M embeddings that are only looked up) + 12 x 32 layers x 4096 x 2048 for attention.
    assert "43.3 B a token" in plan["Compute"]
    assert plan["Speed"].startswith("91.3 k tokens a second, as --mfu says: 50% MFU")
    assert "fits into 80,000 MB" in plan["Memory"] and "dp_shard 8" in plan["Memory"]


def planned(**training: Any) -> dict[str, str]:
    """The lines of a plan whose speed and memory are made up."""
    machine = Machine("h100", count=8, flops=989e12, memory=80 * 10**9, price=3.0)
    config, memory = TrainingConfig.model_validate(SMALL | training), Memory(1, 1, 2, 0, 5, 1, 0, 0, total=10)
    lines = str(Plan(machine, config, 50_000, 1e5, "assumed", memory)).replace("\n          ", " ")
    return {name: rest.strip() for name, _, rest in (line.partition(" ") for line in lines.splitlines())}


def test_a_plan_says_what_chinchillas_law_expects_and_how_its_computation_is_spent_best() -> None:
    plan = planned(model="7b", max_tokens=137_812_770_816, global_batch_tokens=524_288)
    # By hand, for 6.89 B parameters: 1.69 + 0.1836 + 0.3123 and 1.8172 + 0.1825 + 0.1756.
    assert plan["Loss"].startswith("2.186 by Hoffmann et al. 2022 and 2.175 by Besiroglu et al. 2024")
    assert "those authors' text and vocabulary" in plan["Loss"] and "fitted to" not in plan["Loss"]
    first, second = plan["Optimum"].split("; ")
    assert first.startswith("of the same computation: 4.00 B") and first.endswith("by Hoffmann et al. 2022")
    assert second.startswith("6.78 B") and second.endswith("by Besiroglu et al. 2024")
    larger = planned(model="1b", max_tokens=2_097_152_000, global_batch_tokens=524_288)
    assert "an extrapolation: they were fitted to 70 M to 16 B" in larger["Loss"]
    assert "worse than guessing" in planned()["Loss"]


def test_no_loss_is_expected_of_weights_that_are_trained_already() -> None:
    assert not {"Loss", "Optimum"} & planned(pretrained={"path": "/weights"}).keys()


def test_a_recipe_is_planned_as_it_stands_with_the_settings_that_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"training": SMALL, "tokenizer": {"from": "gpt2"}}))
    plan = told(capsys, str(path), "--gpu", " L4", "training.micro_batch_size=2")
    assert plan["Machine"].startswith("1 x l4") and plan["Tokens"].startswith("410 k")
    assert "muon, micro-batches of 2 windows" in plan["Memory"] and "dp_shard" not in plan["Memory"]
    assert "vocabulary 50,000" in plan["Model"] and "vocabulary is not known" in plan["The"]


def test_a_recipe_that_ships_is_planned_by_its_name_for_the_processes_it_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = told(capsys, "7b", "--gpu", "h100")
    assert plan["Machine"].startswith("8 x h100, 989 TFLOP/s and 80 GB each")
    assert "assumed" in plan["Speed"] and "40% MFU" in plan["Speed"]


def test_a_gpu_of_this_machine_need_not_be_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = {
        "is_available": True,
        "is_bf16_supported": True,
        "get_device_name": "NVIDIA GeForce RTX 3070",
        "mem_get_info": (8 * 10**9, 8 * 10**9),
    }
    for name, value in driver.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    monkeypatch.setattr(hardware, "_measured_flops", lambda *_: 37e12)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"training": SMALL, "tokenizer": {"vocab_size": 512}}))
    plan = told(capsys, str(path), "--mfu", "0.5")
    assert plan["Machine"] == "1 x NVIDIA GeForce RTX 3070, 37 TFLOP/s and 8 GB each"
    assert "50% MFU" in plan["Speed"] and "Cost" not in plan
    assert "at 0.20 USD" in told(capsys, str(path), "--mfu", "0.5", "--price", "0.2")["Cost"]


def test_the_cpu_of_this_machine_is_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"training": SMALL, "tokenizer": {"vocab_size": 512}}))
    plan = told(capsys, str(path), "--gpu", "cpu")
    assert "measured now on this machine" in plan["Speed"] and plan["Machine"].startswith("1 x cpu")
    assert plan.keys() == LINES
    no_speed = "no speed can be measured here: give --mfu"
    with monkeypatch.context() as patch, pytest.raises(TrainerError, match=no_speed):
        patch.setattr(cli, "free_memory", lambda device: 10**6)
        main([str(path), "--gpu", "cpu"])

    def runs_out(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cli, "tokens_per_second", runs_out)
    with pytest.raises(TrainerError, match=no_speed):
        main([str(path), "--gpu", "cpu"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one recipe, not 0"),
        (["small"], "small: no such recipe. Give the path of a YAML file, or the name .*: 7b, curriculum, d"),
        (["tiny", "gpu"], "give one recipe, not 2"),
        (["tiny", "--gpu", "cpu", "--gpus", "2"], "--gpus 2 is not for the CPU"),
        (["7b", "--gpu", "b200", "--gpus", "3"], "a multiple of dp_shard 8 .* but there are 3"),
        (["tiny", "training.seq_len=x"], "tiny: training: seq_len"),
        (["tiny", "tokenizer.vocab_size=many"], "the size of the vocabulary is 'many'"),
        (["tiny", "data=[]", "tokenizer=gpt2"], "the size of the vocabulary is 'gpt2'"),
        (["tiny", "launch=3x"], "launch.nproc_per_node is '3x'"),
        (["tiny", "launch.nproc_per_node=two", "--gpu", "l4"], "launch.nproc_per_node is 'two'"),
        (["none.yaml"], r"none\.yaml: cannot be read"),
        (["tiny", "--mfu", "40"], "share of the peak"),
    ],
)
def test_an_impossible_plan_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(TrainerError, match=message):
        main(arguments)


def test_a_program_reads_the_figures_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"tokenizer": {"vocab_size": 512}, "training": SMALL}))
    assert main([str(path), "--gpu", "h100", "--mfu", "0.5", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["tokens"] == SMALL["max_tokens"]
    assert figures["seconds"] == pytest.approx(figures["tokens"] / figures["tokens_per_second"])
    assert 0 < figures["memory_bytes"] < figures["available_bytes"]
    assert figures["gpus"] == torch.cuda.device_count()


def test_the_vocabulary_of_token_shards_is_that_of_their_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"tokenizer_sha256": "0" * 64, "vocab_size": 512, "bot_id": 2, "eot_id": 3, "shards": []}
    (tmp_path / "shards.json").write_text(json.dumps(record))
    path, shape = tmp_path / "config.yaml", TrainingConfig.model_validate(SMALL).model
    path.write_text(yaml.safe_dump({"data": {"shards": str(tmp_path / "shards.json")}, "training": SMALL}))
    assert main([str(path), "--gpu", "h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == shape.parameters(512)
    (tmp_path / "shards.json").unlink()
    assert main([str(path), "--gpu", "h100", "--json"]) == 0  # before the text is tokenized
    printed = capsys.readouterr()
    assert json.loads(printed.out)["parameters"] == shape.parameters(50_000)
    assert "assumes 50,000. Add data.vocab_size=N" in printed.err
