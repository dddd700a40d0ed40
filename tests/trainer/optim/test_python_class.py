"""An optimizer of another package trains, is saved and resumed like ours, or is refused in one sentence
before the first step.
"""

import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.optim import other_optimizers
from tests.trainer.runs import outcome
from tests.trainer.steps import new_session, step
from trainer.checkpoint import publish
from trainer.config import OptimizerConfig, RunConfig
from trainer.optim import python_class
from trainer.run.loop import DONE, run
from trainer.system.errors import TrainerError

HERE = other_optimizers.__name__
ADAMS = {"exp_avg", "exp_avg_sq"}


def with_class(settings: dict[str, Any], reference: str, **optimizer: Any) -> RunConfig:
    settings["training"]["optimizer"] = {"kind": "python", "python": reference, **optimizer}
    return RunConfig.model_validate(settings)


@pytest.mark.parametrize(
    ("reference", "params", "slots"),
    [
        ("torch.optim:NAdam", {"decoupled_weight_decay": True}, ADAMS | {"mu_product", "step"}),
        # Keeps the count of its steps in its groups.
        ("pytorch_optimizer:AdEMAMix", {"betas": [0.9, 0.95, 0.99]}, ADAMS | {"exp_avg_slow", "group.step"}),
        # A count beside each weight.
        (f"{HERE}:Squares", {"momentum": 0.9}, {"momentum_buffer", "number.read"}),
    ],
)
def test_a_run_with_another_packages_optimizer_resumes_to_the_same_bytes(
    settings: dict[str, Any], reference: str, params: dict[str, Any], slots: set[str]
) -> None:
    pytest.importorskip(reference.partition(":")[0])
    config = with_class(settings, reference, params=params, weight_decay=0.1)
    assert run(config) == DONE
    whole = outcome(config.run_dir)
    *_, before, last = publish.existing(config.run_dir / "checkpoints")
    assert {key.partition("/")[0] for key in load_file(before / "optimizer.safetensors")} == slots
    shutil.rmtree(last)
    assert run(config) == DONE
    assert outcome(config.run_dir) == whole


def test_its_groups_have_the_rates_and_the_decay_of_the_recipe(settings: dict[str, Any]) -> None:
    groups = [{"pattern": "lm_head*", "lr_multiplier": 2, "weight_decay": 0.3}]
    config = with_class(settings, "torch.optim:NAdam", lr=0.01, weight_decay=0.1, groups=groups)
    session = new_session(config)
    step(session, 1)
    [optimizer] = session.optimizers
    warmup = 512 / config.training.schedule.warmup_tokens
    found = {(round(group["lr"] / warmup, 6), group["weight_decay"]) for group in optimizer.param_groups}
    assert found == {(0.01, 0.0), (0.01, 0.1), (0.02, 0.3)}


@pytest.mark.parametrize(
    ("reference", "optimizer", "says"),
    [
        ("nowhere.optim:Adam", {}, r"there is no module 'nowhere': install its package in \.venv, or add"),
        ("torch.optim:NAdams", {}, "torch.optim has no 'NAdams': did you mean 'NAdam'"),
        ("torch.nn:Linear", {}, "is not a subclass of torch.optim.Optimizer: name one that is"),
        ("torch.optim:NAdam", {"params": {"beta": 1}}, r"no parameter 'beta' .*did you mean 'betas'"),
        ("torch.optim:NAdam", {"params": {"betas": [2, 3]}}, "cannot be made .*ValueError: Invalid beta"),
        ("torch.optim:LBFGS", {}, "cannot be made from parameter groups .*LBFGS doesn't support"),
        (
            f"{HERE}:WithoutGroups",
            {},
            "cannot be made from parameter groups .*'dict' object has no attribute",
        ),
        (f"{HERE}:WantsAClosure", {}, "cannot take a step: TypeError: .*'closure'"),
        (f"{HERE}:Counts", {}, "resumes from its saved state with other weights: it keeps something outside"),
        (
            f"{HERE}:Counts",
            {"weight_decay": 0.1},
            r"has no weight decay: leave out training\.optimizer\.weight",
        ),
        (
            "pytorch_optimizer:SOAP",
            {},
            "SOAP keeps 'GG' of a parameter as list, which a checkpoint cannot hold",
        ),
    ],
)
def test_what_cannot_train_or_resume_is_refused_before_the_first_step(
    settings: dict[str, Any], reference: str, optimizer: dict[str, Any], says: str
) -> None:
    if reference.startswith("pytorch_optimizer"):
        pytest.importorskip("pytorch_optimizer")
    config = with_class(settings, reference, **optimizer)
    with pytest.raises(TrainerError, match=says):
        run(config)
    assert not publish.existing(config.run_dir / "checkpoints")
    assert not config.run_dir.joinpath("metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("optimizer", "says"),
    [
        ({"kind": "python"}, "kind python needs `python`: name a class as `package.module:Class`"),
        ({"kind": "python", "python": "torch.optim.NAdam"}, "python 'torch.optim.NAdam': name a class in a"),
        ({"kind": "python", "python": "a:B", "params": {"lr": 1}}, r"params has lr, .*set optimizer\.lr"),
    ],
)
def test_a_class_that_is_named_wrong_is_refused_when_the_recipe_is_read(
    settings: dict[str, Any], optimizer: dict[str, Any], says: str
) -> None:
    settings["training"]["optimizer"] = optimizer
    with pytest.raises(ValueError, match=says):
        RunConfig.model_validate(settings)


def test_numbers_in_params_may_be_written_with_an_exponent() -> None:
    config = OptimizerConfig.model_validate(
        {"kind": "python", "python": "torch.optim:NAdam", "params": {"eps": "1e-6", "betas": ["9e-1", 0.99]}}
    )
    assert config.params == {"eps": 1e-6, "betas": [0.9, 0.99]}


def test_the_bytes_of_state_of_a_weight_are_measured() -> None:
    def held(reference: str, **params: Any) -> float:
        config = OptimizerConfig.model_validate({"kind": "python", "python": reference, "params": params})
        return python_class.rehearse(config, torch.device("cpu"))

    assert held("torch.optim:SGD") == 0
    assert held("torch.optim:SGD", momentum=0.9) == 4
    assert held("torch.optim:NAdam") == pytest.approx(8, abs=0.01)


def test_a_second_pass_over_preferences_is_refused(dpo: dict[str, Any]) -> None:
    with pytest.raises(TrainerError, match=r"training\.objective dpo: its loss is per pair"):
        new_session(with_class(dpo, f"{HERE}:Squares"))
