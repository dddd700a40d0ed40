"""What is evaluated and exported is the stated average of the weights; training goes on from the others,
resumed or not.
"""

import shutil
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from tests.trainer.runs import outcome
from tests.trainer.steps import new_session
from tests.trainer.trained import trained
from trainer.checkpoint import publish
from trainer.config import RunConfig
from trainer.optim.weight_averaging import use_averaged_weights
from trainer.run.evaluation.validation import evaluate_checkpoint
from trainer.run.loop import DONE, run
from trainer.run.session import Session
from trainer.system.run_history import RunHistory

STEP_TOKENS = 256
AVERAGING = {"half_life_tokens": 2 * STEP_TOKENS}
Weights = dict[str, torch.Tensor]


def weights(session: Session) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in session.model.named_parameters()}


def course(settings: dict[str, Any], steps: int) -> tuple[Session, list[Weights]]:
    """A run in memory, and its weights after each step."""
    session, seen = new_session(settings), []
    for step in range(steps):
        session.take_step(torch.from_numpy(session.plan.data.batch(step, 0, 1)))
        seen.append(weights(session))
    return session, seen


def expected(seen: list[Weights], name: str) -> torch.Tensor:
    # of so few steps none counts for less yet
    average = torch.stack([one[name].double() for one in seen[:3]]).mean(0)
    for one in seen[3:]:
        average = average * 0.5**0.5 + one[name].double() * (1 - 0.5**0.5)
    return average


def test_the_average_is_the_stated_one_and_training_does_not_know_of_it(settings: dict[str, Any]) -> None:
    _, without = course(settings, 9)
    settings["training"]["averaging"] = AVERAGING
    session, seen = course(settings, 9)
    for ours, theirs in zip(seen, without, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    with use_averaged_weights(session.optimizers):
        inside = weights(session)
    for name, weight in inside.items():
        torch.testing.assert_close(weight.double(), expected(seen, name), rtol=1e-5, atol=1e-6)
    assert all(torch.equal(weight, seen[-1][name]) for name, weight in weights(session).items())


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_resumed_run_ends_in_the_same_average_which_is_evaluated_and_exported(
    settings: dict[str, Any], optimizer: str
) -> None:
    """With dropout, which drops the same after it is resumed."""
    settings["training"] |= {"averaging": AVERAGING, "optimizer": {"kind": optimizer}, "dropout": 0.1}
    config = trained(settings)
    whole = outcome(config.run_dir)
    checkpoint = publish.existing(config.run_dir / "checkpoints")[-1]
    files = ("optimizer.safetensors", "hf/model.safetensors")
    state, exported = (load_file(checkpoint / file) for file in files)
    for name, weight in exported.items():
        assert not torch.equal(state[f"trained/{name}"][: len(weight)], weight)
    last = RunHistory(config.run_dir).validations[-1]
    assert evaluate_checkpoint(checkpoint, config)["loss"] == pytest.approx(last["loss"], rel=1e-5)

    shutil.rmtree(checkpoint)
    assert run(config) == DONE
    assert outcome(config.run_dir) == whole


def test_an_average_that_is_no_longer_wanted_is_not_evaluated_or_exported(settings: dict[str, Any]) -> None:
    settings["training"]["checkpoint"] = {"every_tokens": 8 * STEP_TOKENS}
    trained(settings, averaging=AVERAGING, max_tokens=8 * STEP_TOKENS)
    settings["training"] |= {"averaging": None, "max_tokens": 12 * STEP_TOKENS}
    config = RunConfig.model_validate(settings)
    assert run(config, allow_changes=True) == DONE
    checkpoint = publish.existing(config.run_dir / "checkpoints")[-1]
    slots = {key.partition("/")[0] for key in load_file(checkpoint / "optimizer.safetensors")}
    assert slots.isdisjoint(("average", "trained"))


def test_an_average_that_the_run_is_too_short_for_is_refused(settings: dict[str, Any]) -> None:
    settings["training"]["averaging"] = {"half_life_tokens": 10_000_000}
    with pytest.raises(ValidationError, match=r"averaging.half_life_tokens 10000000 is more than max_tokens"):
        RunConfig.model_validate(settings)
