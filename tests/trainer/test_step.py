"""One step: the same update however the batch is cut, the right rule for each parameter, padding that stays zero."""

import math
from typing import Any

import pytest
import torch

from trainer.config import RunConfig
from trainer.errors import TrainerError
from trainer.model import Llama
from trainer.parallel.world import World
from trainer.session import Session
from trainer.step import train_step

ALONE = World(0, 1, torch.device("cpu"))


def run_steps(settings: dict[str, Any], steps: int = 2, **training: Any) -> tuple[list[float], Llama]:
    config = RunConfig.model_validate({**settings, "training": {**settings["training"], **training}})
    session = Session.prepare(config, ALONE)
    losses = []
    for step in range(steps):
        windows = torch.from_numpy(session.data.batch(step, 0, 1))
        result = train_step(session.model, session.optimizers, windows, step, config.training, session.precision, session.bot_id, ALONE)
        losses.append(result.loss)
    return losses, session.model


def assert_same_weights(ours: Llama, theirs: Llama, tolerance: float) -> None:
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize("micro_batch_size", [1, 2, 4])
def test_accumulation_gives_the_update_of_the_whole_batch(settings: dict[str, Any], micro_batch_size: int) -> None:
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
def test_training_learns_and_leaves_the_padding_at_zero(settings: dict[str, Any], kind: str, tied: bool) -> None:
    model = {**settings["training"]["model"], "tie_embeddings": tied}
    losses, trained = run_steps(settings, 12, model=model, optimizer={"kind": kind, "weight_decay": 0.1})
    assert losses[-1] < losses[0] - 0.5
    for weight in (trained.model.embed_tokens.weight, trained.lm_head.weight):
        assert weight.shape[0] == 320
        assert not weight[300:].any()


def test_masking_documents_changes_what_a_token_sees(settings: dict[str, Any]) -> None:
    init = {"zero_output": False}
    assert run_steps(settings, 2, document_masking=True, init=init)[0] != run_steps(settings, 2, init=init)[0]


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(settings: dict[str, Any]) -> None:
    config = RunConfig.model_validate(settings)
    session = Session.prepare(config, ALONE)
    with torch.no_grad():
        session.model.model.norm.weight[0] = torch.nan
    before = session.model.lm_head.weight.clone()
    windows = torch.from_numpy(session.data.batch(0, 0, 1))
    with pytest.raises(TrainerError, match="step 1: loss nan"):
        train_step(session.model, session.optimizers, windows, 0, config.training, "fp32", None, ALONE)
    assert torch.equal(session.model.lm_head.weight, before)
