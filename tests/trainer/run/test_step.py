"""One step: the same update however it is cut, the right rule for each parameter, padding stays zero."""

import json
import math
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from tests.trainer.steps import after_each_step, new_session, step
from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.model.llama import Llama
from trainer.run.loop import run
from trainer.run.records.nonfinite_report import explain
from trainer.run.session import Session
from trainer.run.spikes import STEPS, SpikeDetector
from trainer.run.step import NotFiniteError
from trainer.system.errors import TrainerError


def run_steps(settings: dict[str, Any], steps: int = 2, **training: Any) -> tuple[list[float], Llama]:
    config = RunConfig.model_validate({**settings, "training": {**settings["training"], **training}})
    session = new_session(config)
    return [step(session, number).loss for number in range(steps)], session.model


def assert_same_weights(ours: Llama, theirs: Llama, tolerance: float) -> None:
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance, msg=name)


def test_documents_are_told_apart_where_they_are_masked(settings: dict[str, Any]) -> None:
    for masked in (True, False):
        settings["training"]["document_masking"] = masked
        session = new_session(settings)
        assert (session.context.bot_id is not None) == masked


@pytest.mark.parametrize("micro_batch_size", [1, 2, 4])
def test_accumulation_gives_the_update_of_the_whole_batch(
    settings: dict[str, Any], micro_batch_size: int
) -> None:
    adamw = {"kind": "adamw", "lr": 1e-3, "eps": 1e-4}
    whole_losses, whole = run_steps(settings, micro_batch_size=8, optimizer=adamw)
    losses, model = run_steps(settings, micro_batch_size=micro_batch_size, optimizer=adamw)
    assert losses == pytest.approx(whole_losses, rel=1e-6)
    assert_same_weights(model, whole, 1e-6)


def test_the_first_loss_is_that_of_guessing(settings: dict[str, Any]) -> None:
    losses, _ = run_steps(settings, steps=1)
    assert losses[0] == pytest.approx(math.log(300), abs=0.05)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [False, True])
def test_training_learns_and_leaves_the_padding_at_zero(
    settings: dict[str, Any], kind: str, tied: bool
) -> None:
    model = {**settings["training"]["model"], "tie_embeddings": tied}
    losses, trained = run_steps(settings, 12, model=model, optimizer={"kind": kind, "weight_decay": 0.1})
    assert losses[-1] < losses[0] - 0.5
    for weight in (trained.model.embed_tokens.weight, trained.lm_head.weight):
        assert weight.shape[0] == 320
        assert not weight[300:].any()


@pytest.mark.parametrize("action", ["log", "skip"])
def test_a_spike_changes_the_weights_unless_it_is_to_be_skipped(
    settings: dict[str, Any], action: str
) -> None:
    training = {**settings["training"], "spikes": {"action": action}}
    session = new_session({**settings, "training": training})
    session.context.spikes = SpikeDetector((0.5 + number % 2 / 100, 1.0) for number in range(STEPS))
    before = [parameter.detach().clone() for parameter in session.model.parameters()]
    result = step(session, 0)
    assert result.spike and result.skipped == (action == "skip")
    same = all(map(torch.equal, before, session.model.parameters()))
    assert same == (action == "skip")


def test_masking_documents_changes_what_a_token_sees(settings: dict[str, Any]) -> None:
    init = {"zero_output": False}
    assert run_steps(settings, 2, document_masking=True, init=init)[0] != run_steps(settings, 2, init=init)[0]


def test_the_backward_pass_begins_without_the_last_hidden_states(settings: dict[str, Any]) -> None:
    session, held = new_session(settings), list[bool]()

    def watch(_: nn.Module, inputs: object, output: torch.Tensor) -> None:
        kept = weakref.ref(output)
        output.register_hook(lambda _: held.append(kept() is not None))

    session.model.model.norm.register_forward_hook(watch)
    step(session, 0)
    assert held == [False, False]  # of two micro-batches


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(settings: dict[str, Any]) -> None:
    session = new_session(settings)
    with torch.no_grad():
        session.model.model.norm.weight[0] = torch.nan
    before = session.model.lm_head.weight.clone()
    with pytest.raises(TrainerError, match="step 1: loss nan"):
        step(session, 0)
    assert torch.equal(session.model.lm_head.weight, before)


def test_what_was_not_finite_is_told_with_the_batch_beside(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight that turns into NaN in the fifth step: nothing after the fourth is saved."""
    config = RunConfig.model_validate(settings)

    @torch.no_grad()
    def spoil(session: Session) -> None:
        if session.step == 5:
            session.model.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan

    after_each_step(monkeypatch, spoil)
    says = r"step 6: loss nan.*these weights were not finite before this step: model\.layers\.1\.mlp"
    with pytest.raises(TrainerError, match=rf"{says}\.up_proj\.weight\. They are in no checkpoint"):
        run(config)
    assert [path.name for path in (config.run_dir / "checkpoints").iterdir()] == ["step-00000004"]
    told = json.loads((config.run_dir / "not-finite/step-00000006.json").read_text())
    assert (told["step"], told["loss"]) == (6, "nan")
    assert told["weights_not_finite"] == ["model.layers.1.mlp.up_proj.weight"]
    assert told["window_losses_in_fp32"] == ["nan"] * 8
    batch = load_file(config.run_dir / "not-finite/step-00000006.safetensors")["windows"]
    assert np.array_equal(batch, TrainingData(config.data, config.training, config.run_dir).batch(5, 0, 1))


def test_a_batch_too_large_for_fp16_is_told_from_one_that_fp32_cannot_do_either(
    settings: dict[str, Any],
) -> None:
    settings["training"] |= {"precision": "fp16", "init": {"zero_output": False}}
    session = new_session(settings)
    error, run_dir = NotFiniteError(1, math.inf, math.inf), session.config.run_dir
    with torch.no_grad():
        session.model.model.layers[0].mlp.up_proj.weight.mul_(1e8)
    assert "in fp32 the loss is finite: train in bf16 or fp32" in explain(session, error, run_dir)
    with torch.no_grad():
        session.model.model.norm.weight.fill_(1e20)
        session.model.lm_head.weight.mul_(1e22)
    assert "not finite in fp32 either: lower the learning rate" in explain(session, error, run_dir)
