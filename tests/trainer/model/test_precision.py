"""fp16: an overflow costs its batch and nothing else, and a resumed run knows the loss scale."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.parallel.processes import CONTEXT, together
from tests.trainer.runs import history
from tests.trainer.steps import ALONE, new_session, step
from tests.trainer.trained import assert_resumes_to_the_same_bytes, trained
from trainer.checkpoint.background import Staging
from trainer.config import RunConfig
from trainer.model import precision
from trainer.model.precision import LossScale, resolve_precision
from trainer.parallel.pipeline_parallel import whole_parameters
from trainer.parallel.world import join, leave
from trainer.run import resume
from trainer.run.loop import DONE, run
from trainer.run.session import Session
from trainer.system.errors import TrainerError


@pytest.fixture
def fp16(settings: dict[str, Any]) -> Session:
    settings["training"] |= {"precision": "fp16", "optimizer": {"kind": "adamw", "lr": 1e-3}}
    return new_session(settings)


def test_fp16_learns_what_fp32_does(settings: dict[str, Any], fp16: Session) -> None:
    full = new_session({**settings, "training": {**settings["training"], "precision": "fp32"}})
    for number in range(8):
        half, whole = step(fp16, number), step(full, number)
        assert not half.skipped
        assert half.loss == pytest.approx(whole.loss, rel=2e-3)
        assert half.grad_norm == pytest.approx(whole.grad_norm, rel=2e-2)


def test_an_overflow_changes_neither_weights_nor_schedule(fp16: Session) -> None:
    first = step(fp16, 0)
    before = [parameter.detach().clone() for parameter in fp16.model.parameters()]
    fp16.context.loss_scale.value = 2.0**60
    skipped = step(fp16, 1)
    assert skipped.skipped and skipped.lr_factor == 0
    assert all(torch.equal(old, new) for old, new in zip(before, fp16.model.parameters(), strict=True))
    assert fp16.context.loss_scale == LossScale(2.0**59, 0, 1, in_use=True)
    fp16.context.loss_scale.value = 2.0**10
    assert step(fp16, 2).lr_factor == pytest.approx(2 * first.lr_factor)


def test_the_scale_grows_again_and_gives_up_when_nothing_helps(
    fp16: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "GROWTH_STEPS", 3)
    for number in range(3):
        step(fp16, number)
    assert fp16.context.loss_scale.value == 2 * precision.FIRST_SCALE
    with torch.no_grad():
        fp16.model.model.norm.weight[0] = torch.nan
    with pytest.raises(TrainerError, match="gradient norm nan; the weights were not changed"):
        for number in range(3, 40):
            step(fp16, number)
    assert fp16.context.loss_scale.value == 1


def test_a_run_resumed_after_overflows_goes_on_with_its_scale(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings["training"]["precision"] = "fp16"
    config = RunConfig.model_validate(settings)
    monkeypatch.setattr(precision, "FIRST_SCALE", 2.0**27)
    assert run(config) == DONE

    rates = [one["lr"] for one in history(config.run_dir) if one["kind"] == "train"]
    assert rates[0] == 0 < rates[-1]
    assert_resumes_to_the_same_bytes(config)


@pytest.mark.parametrize(("first", "then"), [("fp16", "fp32"), ("bf16", "fp16")])
def test_a_change_of_precision_begins_with_that_precisions_own_scale(
    settings: dict[str, Any], first: str, then: str
) -> None:
    settings["training"] |= {"max_tokens": 4 * 256, "checkpoint": {"every_tokens": 4 * 256}}
    trained(settings, precision=first)
    settings["training"]["precision"] = then
    session = new_session(settings)
    checkpoint = resume.find(session.plan, session.config.run_dir / "checkpoints", allow_changes=True)
    assert checkpoint is not None
    resume.restore(session, checkpoint)
    assert session.context.loss_scale == LossScale.of(session.plan.precision)


def test_a_scale_that_had_to_go_down_to_one_grows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "GROWTH_STEPS", 2)
    scale = LossScale(1.0, in_use=True)
    for _ in range(4):
        scale.adapt(finite=True)
    assert scale.value == 4


def _steps(settings: dict[str, Any], told: Any) -> None:
    """Four steps of one of two processes. In the third, gradients of process 1 overflow."""
    config = RunConfig.model_validate(settings)
    session, results = new_session(config, join(config.training.parallel)), []
    world = session.world
    for number in range(4):
        last_block = [*session.model.model.layers][-1]
        hook = last_block.register_forward_hook(_overflow) if (number, world.rank) == (2, 1) else None
        windows = session.plan.data.batch(number, world.data_rank, world.data_size)
        results.append(session.take_step(torch.from_numpy(windows)))
        if hook is not None:
            hook.remove()
    weights = sum(one.double().sum().item() for _, one in whole_parameters(session.model))
    told.put((world.rank, results, weights))
    leave()


def _overflow(block: nn.Module, inputs: Any, output: torch.Tensor) -> None:
    output.register_hook(lambda gradient: gradient * torch.inf)


@pytest.mark.parametrize(
    "parallel",
    [{}, *(pytest.param(split, marks=pytest.mark.slow) for split in ({"dp_shard": 2}, {"tp": 2}, {"pp": 2}))],
)
def test_an_overflow_in_one_process_skips_the_step_in_all(
    settings: dict[str, Any], parallel: dict[str, int]
) -> None:
    optimizer = {"kind": "adamw", "lr": 1e-3}
    settings["training"] |= {"precision": "fp16", "optimizer": optimizer, "parallel": parallel}
    told = CONTEXT.Queue()
    assert together(_steps, 2, settings, told) == [0, 0]
    both = sorted((told.get(timeout=1) for _ in range(2)), key=lambda one: one[0])
    (_, first, weights), (_, second, others) = both
    assert list(map(repr, first)) == list(map(repr, second)) and weights == others
    assert [result.skipped for result in first] == [False, False, True, False]
    factors = [result.lr_factor for result in first]
    curriculum = RunConfig.model_validate(settings).training.curriculum
    assert factors[2] == 0 and factors[3] == pytest.approx(curriculum.stage(3).lr_factor(3 * 256))


def test_tf32_on_a_cpu_is_refused() -> None:
    with pytest.raises(TrainerError, match="tf32 is for NVIDIA GPUs"):
        resolve_precision("tf32", torch.device("cpu"))


@pytest.mark.slow
def test_fp8_learns_what_bf16_does_and_its_checkpoints_hold_a_plain_model(settings: dict[str, Any]) -> None:
    """Emulated: the same rounding as on a GPU, at the speed of none."""
    pytest.importorskip("torchao", reason="the extra `torchao` is not installed")
    settings["training"] |= {"precision": "bf16", "init": {"zero_output": False}}
    settings["training"]["optimizer"] = {"kind": "adamw", "lr": 1e-3}
    plain, eighth = (new_session(settings) for _ in range(2))
    precision.convert_to_fp8(eighth.model.model.layers, emulated=True)
    for number in range(8):
        ours, theirs = step(eighth, number), step(plain, number)
        assert ours.loss == pytest.approx(theirs.loss, rel=5e-3)
        assert ours.loss != theirs.loss
    copied = Staging().model(eighth.model, ALONE)
    assert copied is not None
    assert {type(module) for module in copied.modules() if isinstance(module, nn.Linear)} == {nn.Linear}
    assert all(
        torch.equal(mine, other)
        for mine, other in zip(copied.parameters(), eighth.model.parameters(), strict=True)
    )


def test_fp8_where_the_hardware_has_none_is_refused() -> None:
    with pytest.raises(TrainerError, match=r"fp8 is for NVIDIA GPUs of compute capability 8\.9"):
        resolve_precision("fp8", torch.device("cpu"))
