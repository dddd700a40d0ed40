"""Means of checkpoints: the weights are PyTorch's plain mean, and the mean is a run that commands open."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.trainer.trained import saved, trained
from trainer.__main__ import main
from trainer.checkpoint import publish
from trainer.config import RunConfig
from trainer.hf import load_model
from trainer.hf.mean import mean, write_mean
from trainer.run.evaluation.validation import evaluate_checkpoint
from trainer.run.loop import DONE, run
from trainer.system.durable import read_json_lines
from trainer.system.errors import TrainerError
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import RunHistory, checkpoint_sha256
from trainer.tools.merge import merge

pytestmark = pytest.mark.usefixtures("trainer_environment")
STEP = 256
WEIGHTS = "hf/model.safetensors"
MEAN_OF_THREE = {"checkpoints": 3, "every_tokens": 2 * STEP}


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint / WEIGHTS)


def plain_mean(checkpoints: list[Path]) -> dict[str, torch.Tensor]:
    held = [weights(path) for path in checkpoints]
    return {name: torch.stack([one[name] for one in held]).mean(0) for name in held[0]}


def test_the_mean_is_pytorchs_to_the_bit_and_opens_as_a_run(settings: dict[str, Any], tmp_path: Path) -> None:
    config = trained(settings, averaging=MEAN_OF_THREE)
    last = saved(config)[-3:]
    found = merge(last, None, tmp_path / "mean", "the mean")
    made = Path(found["path"])
    expected = plain_mean(last)
    assert weights(made).keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(made).items())
    history = RunHistory(tmp_path / "mean")
    assert history.title == "the mean" and list(history.checkpoints()) == [12]
    measured = evaluate_checkpoint(made, config)
    assert history.validations[-1]["loss"] == found["validation_loss"] == measured["loss"]
    parents = json.loads((made / "lineage.json").read_text())["merged"]
    assert [one["checkpoint"] for one in parents] == [f"run-{step:08d}" for step in (8, 10, 12)]
    assert [one["sha256"] for one in parents] == [checkpoint_sha256(path) for path in last]
    assert sum(one["share"] for one in parents) == pytest.approx(1)
    assert main(["generate", "--model", str(tmp_path / "mean"), "--prompt", "the"]) == 0


def test_tied_heads_are_merged_once_and_stay_tied(settings: dict[str, Any], tmp_path: Path) -> None:
    settings["training"]["model"] |= {"tie_embeddings": True}
    config = trained(settings)
    made = Path(merge(saved(config), None, tmp_path / "mean", "")["path"])
    assert "lm_head.weight" not in weights(made)
    model = load_model(made / "hf", torch.device("cpu"))
    expected = plain_mean(saved(config))["model.embed_tokens.weight"]
    assert torch.equal(model.model.embed_tokens.weight[: len(expected)], expected)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_weights_in_bf16_are_averaged_in_fp32(settings: dict[str, Any], tmp_path: Path) -> None:
    config = trained(settings)
    models = []
    for number, checkpoint in enumerate(saved(config)):
        models.append(tmp_path / f"bf16-{number}")
        shutil.copytree(checkpoint / "hf", models[-1])
        halves = {name: tensor.bfloat16() for name, tensor in weights(checkpoint).items()}
        save_file(halves, models[-1] / "model.safetensors")
    write_mean(models, None, like=models[0], destination=tmp_path / "mean")
    found = load_file(tmp_path / "mean/model.safetensors")
    held = [load_file(model / "model.safetensors") for model in models]
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, torch.stack([one[name].float() for one in held]).mean(0))


def test_weights_decide_shares() -> None:
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 10.0])
    assert mean([one, other], [3, 1]).tolist() == [2.0, 4.0]
    assert torch.equal(mean([one, other], [0.5, 0.5]), mean([one, other]))


def test_a_run_that_is_resumed_ends_in_the_same_mean(settings: dict[str, Any], tmp_path: Path) -> None:
    """Also after a stop, which saved a checkpoint of a step that is none of the mean's."""
    kept = {"every_tokens": 3 * STEP, "keep_last": 2}
    config = trained(settings, averaging=MEAN_OF_THREE, checkpoint=kept)
    steps = config.training.averaged_steps
    assert [publish.step_of(path) for path in saved(config)] == list(steps) == [8, 10, 12]
    # the one beyond `keep_last` is of the model only
    assert [bool(publish.optimizer_files(path)) for path in saved(config)] == [False, True, True]

    def mean_of_run(name: str) -> bytes:
        checkpoints = list(map(RunDirectory(config.run_dir).checkpoint, steps))
        return (Path(merge(checkpoints, None, tmp_path / name, "")["path"]) / WEIGHTS).read_bytes()

    whole = mean_of_run("whole")
    shutil.rmtree(config.run_dir)
    often = kept | {"every_tokens": STEP}
    config = trained(settings, averaging=MEAN_OF_THREE, checkpoint=often)  # which also saves step 11
    assert [publish.step_of(path) for path in saved(config)] == [8, 10, 11, 12]
    shutil.rmtree(saved(config)[-1])
    assert run(config) == DONE
    assert mean_of_run("again") == whole


def test_a_mean_is_another_artefact_and_no_other_training(settings: dict[str, Any]) -> None:
    without = RunConfig.model_validate(settings).training
    settings["training"]["averaging"] = MEAN_OF_THREE
    averaged = RunConfig.model_validate(settings).training
    assert averaged.decisive == without.decisive and averaged.averaged_steps == [8, 10, 12]
    settings["training"]["averaging"] = MEAN_OF_THREE | {"half_life_tokens": STEP}
    assert RunConfig.model_validate(settings).training.decisive["averaging"] == {"half_life_tokens": STEP}


@pytest.mark.parametrize(
    ("averaging", "checkpoint", "told"),
    [
        ({}, {"every_tokens": STEP}, "set checkpoints or half_life_tokens"),
        ({"checkpoints": 8}, {"every_tokens": 4 * STEP}, "a run of 3072 tokens has only 3: lower"),
        ({"checkpoints": 2}, {"every_minutes": 5}, "needs checkpoints at fixed steps: set"),
        ({"half_life_tokens": STEP, "every_tokens": STEP}, {"every_tokens": STEP}, "set checkpoints, too"),
    ],
)
def test_settings_that_give_no_mean_are_refused(
    settings: dict[str, Any], averaging: dict[str, Any], checkpoint: dict[str, Any], told: str
) -> None:
    settings["training"] |= {"averaging": averaging, "checkpoint": checkpoint}
    with pytest.raises(ValueError, match=told):
        RunConfig.model_validate(settings)


def test_what_cannot_be_merged_is_said_in_one_sentence(
    settings: dict[str, Any], sft: dict[str, Any], tmp_path: Path
) -> None:
    config = trained(settings)
    ours = saved(config)
    other = json.loads(json.dumps(settings)) | {"run_dir": str(tmp_path / "wider")}
    other["training"]["model"] |= {"d_ff": 64}
    wider = saved(trained(other))[-1]
    foreign = tmp_path / "foreign"
    shutil.copytree(config.run_dir, foreign)
    tokenizer = saved(config.model_copy(update={"run_dir": foreign}))[-1] / "hf/tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    manifest = tokenizer.parents[1] / "manifest.json"
    files = json.loads(manifest.read_text())
    files["files"].pop("hf/tokenizer.json")
    manifest.write_text(json.dumps(files))
    damaged = tmp_path / "damaged"
    shutil.copytree(config.run_dir, damaged)
    broken = publish.existing(damaged / "checkpoints")[0]
    (broken / WEIGHTS).write_bytes(b"")

    def refused(*checkpoints: Path, weights: list[float] | None = None) -> str:
        with pytest.raises(TrainerError) as caught:
            merge(checkpoints, weights, tmp_path / "mean", "")
        assert not (tmp_path / "mean").exists()
        return str(caught.value)

    assert "intermediate_size 64, and" in refused(ours[-1], wider)
    assert "another tokenizer" in refused(ours[-1], tokenizer.parents[1])
    assert "differs from its manifest" in refused(ours[-1], broken)
    assert "at least two" in refused(ours[-1])
    assert "2 numbers for 3 checkpoints" in refused(*ours, ours[0], weights=[1, 1])
    assert "must be above 0" in refused(*ours, weights=[1, 0])
    for weights in ([1e308, 1e308], [1e-50, 1e-50], [1, 1e39], [1, 1e-12]):  # zeros or NaN in fp32
        assert "only the ratios count" in refused(*ours, weights=weights)


def test_a_tuned_model_is_not_merged_with_its_base(sft: dict[str, Any], chats: Any, tmp_path: Path) -> None:
    tuned = trained(sft)
    base = json.loads(json.dumps(sft)) | {"run_dir": str(tmp_path / "base")}
    base["training"] |= {"objective": "pretrain", "packing": "windows", "document_masking": False}
    untuned = trained(base)
    with pytest.raises(TrainerError, match=r"objective pretrain and .* with sft: a tuned model is"):
        merge([saved(tuned)[-1], saved(untuned)[-1]], None, tmp_path / "mean", "")


def test_the_last_checkpoints_of_a_run_are_merged_from_the_command_line(
    finished: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--output", str(tmp_path / "mean")]
    assert main(["merge", str(finished.run_dir), "--last", "2", *out]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["step"] == 12 and Path(printed["path"]).is_dir()
    metrics = read_json_lines(tmp_path / "mean/metrics.jsonl")
    assert [one["step"] for one in metrics if one["kind"] == "evaluation"] == [6, 12]
    assert main(["merge", str(finished.run_dir), "--last", "9", *out]) == 2  # it exists
    assert main(["merge", str(finished.run_dir), "--last", "9", "--output", str(tmp_path / "other")]) == 2
    assert "--last 9 checkpoints, but only 2 are on disk (steps 8, 12)" in capsys.readouterr().err


def test_preferences_are_measured_of_a_mean(dpo: dict[str, Any], tmp_path: Path) -> None:
    config = trained(dpo)
    found = merge(saved(config), None, tmp_path / "mean", "")
    scores = RunHistory(tmp_path / "mean").validations[-1]
    assert scores["loss"] == found["validation_loss"] and 0 <= scores["accuracy"] <= 1
    assert scores["perplexity"] == found["perplexity"]  # of the chosen answers, not of the loss of pairs


def test_a_mean_of_a_mean_names_what_that_was_made_of(finished: RunConfig, tmp_path: Path) -> None:
    first = Path(merge(saved(finished), None, tmp_path / "first", "")["path"])
    made = Path(merge([first, saved(finished)[0]], [3, 1], tmp_path / "second", "")["path"])
    mean_of, other = json.loads((made / "lineage.json").read_text())["merged"]
    assert [one["checkpoint"] for one in (mean_of, other)] == ["first-00000012", "run-00000008"]
    assert [one["checkpoint"] for one in mean_of["lineage"]["merged"]] == ["run-00000008", "run-00000012"]
    assert [mean_of["share"], other["share"]] == [0.75, 0.25]
