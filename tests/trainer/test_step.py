"""One step: the same update however the batch is cut, the right rule for each parameter, padding that stays zero."""

import math
from typing import Any

import pytest
import torch

from trainer.config import OptimizerConfig, RunConfig, ScheduleConfig
from trainer.errors import TrainerError
from trainer.model import Llama
from trainer.optim.build import build, parameter_groups
from trainer.parallel.world import World
from trainer.schedule import lr_factor
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


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_has_exactly_one_rule_and_only_matrices_decay(config: RunConfig, kind: str, tied: bool) -> None:
    shape = config.training.model.model_copy(update={"tie_embeddings": tied, "qk_norm": True})
    model = Llama(shape, 300, 32, "math")
    optimizers = build(model, OptimizerConfig.model_validate({"kind": kind, "weight_decay": 0.1}))
    owned = [parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(map(id, owned)) == sorted(map(id, model.parameters()))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed = {names[id(p)] for o in optimizers for group in o.param_groups if group["weight_decay"] for p in group["params"]}
    assert decayed == {name for name in names.values() if name.endswith("proj.weight") or name == "lm_head.weight"}
    assert ("lm_head.weight" in decayed) is not tied


def test_groups_have_their_own_learning_rates(config: RunConfig) -> None:
    model = Llama(config.training.model, 300, 32, "math")
    muon, adamw = build(model, OptimizerConfig(kind="muon", lr=1.0, embedding_lr=2.0, head_lr=3.0, muon_lr=4.0))
    rates = {id(parameter): group["base_lr"] for optimizer in (muon, adamw) for group in optimizer.param_groups for parameter in group["params"]}
    wanted = {"hidden": 4.0, "embedding": 2.0, "head": 3.0, "norm": 1.0}
    for role, named in parameter_groups(model, OptimizerConfig()).items():
        assert {rates[id(parameter)] for parameter in named.values()} == {wanted[role]}


def test_the_cosine_warms_up_and_ends_at_its_floor() -> None:
    schedule = ScheduleConfig(warmup_tokens=100, min_lr_ratio=0.1)
    assert lr_factor(schedule, 10, 1000) == pytest.approx(0.1)
    assert lr_factor(schedule, 100, 1000) == pytest.approx(1.0)
    assert lr_factor(schedule, 550, 1000) == pytest.approx(0.55)
    assert lr_factor(schedule, 1000, 1000) == pytest.approx(0.1)


def test_the_plateau_ends_in_a_line() -> None:
    schedule = ScheduleConfig(kind="warmup_stable_linear", warmup_tokens=100, min_lr_ratio=0.0, decay_fraction=0.6)
    assert [lr_factor(schedule, tokens, 1000) for tokens in (50, 100, 400, 700, 1000)] == pytest.approx([0.5, 1, 1, 0.5, 0])


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
