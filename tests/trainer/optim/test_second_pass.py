"""A second pass over a batch reads targets that the model draws as it predicts them, however it is cut."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.steps import new_session, step
from trainer.config import RunConfig
from trainer.optim.second_pass import draw_tokens, draws
from trainer.optim.sophia import INTERVAL
from trainer.run.session import Session
from trainer.run.step import StepContext


def test_tokens_are_drawn_as_the_model_predicts_them() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(1, 4, generator=generator), torch.randn(8, 4, generator=generator)
    uniform = draws(0, first_sample=0, samples=1, length=100_000)[0]
    drawn = draw_tokens(hidden.expand(100_000, 4), head, uniform, vocab_size=6)
    expected = (hidden @ head[:6].T).softmax(-1)[0]
    assert (drawn.bincount(minlength=6) / 100_000 - expected).abs().max() < 0.005


@given(seed=st.integers(0, 2**63 - 1), first=st.integers(0, 2**40), cut=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_a_samples_draws_follow_from_the_seed_and_its_number_alone(seed: int, first: int, cut: int) -> None:
    whole = draws(seed, first_sample=first, samples=5, length=7)
    assert torch.equal(
        whole,
        torch.cat(
            [
                draws(seed, first_sample=first, samples=cut, length=7),
                draws(seed, first_sample=first + cut, samples=5 - cut, length=7),
            ]
        ),
    )
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(whole, draws(seed ^ 1, first_sample=first, samples=5, length=7))


def test_drawing_tokens_casts_the_head_once_not_for_each_chunk() -> None:
    class Casts(TorchDispatchMode):
        of_the_head = 0

        def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), options: Any = None) -> Any:
            is_cast = operation is torch.ops.aten._to_copy.default
            self.of_the_head += is_cast and given[0].shape == (70_000, 2)
            return operation(*given, **(options or {}))

    hidden, head = torch.randn(100, 2, dtype=torch.bfloat16), torch.randn(70_016, 2)
    with Casts() as casts:
        draw_tokens(hidden, head, torch.rand(100), 70_000)
    assert casts.of_the_head == 1


def sophia(settings: dict[str, Any], **training: Any) -> Session:
    changes = {"optimizer": {"kind": "sophia"}, "init": {"zero_output": False}}
    settings["training"] |= changes | training
    return new_session(settings)


def curvature(session: Session) -> torch.Tensor:
    return session.optimizers[0].state[session.model.lm_head.weight]["curvature"].clone()


def test_the_curvature_does_not_depend_on_how_the_batch_is_cut(settings: dict[str, Any]) -> None:
    found = []
    for micro_batch_size in (1, 4):
        session = sophia(settings, micro_batch_size=micro_batch_size)
        step(session, 0)
        found.append(curvature(session))
    assert found[0].any()
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-9)


def test_the_curvature_is_estimated_before_every_tenth_step(settings: dict[str, Any]) -> None:
    session, seen = sophia(settings), []
    for number in range(12):
        step(session, number)
        seen.append(curvature(session))
    changed = [number for number in range(1, 12) if not torch.equal(seen[number], seen[number - 1])]
    assert changed == [INTERVAL]


def test_the_loss_and_the_gradient_of_a_step_are_those_without_a_second_pass(
    settings: dict[str, Any],
) -> None:
    session = sophia(settings)
    settings["training"]["optimizer"] = {"kind": "adamw"}
    other = new_session(settings)
    ours, theirs = step(session, 0), step(other, 0)
    assert (ours.loss, ours.grad_norm) == (theirs.loss, theirs.grad_norm)


def test_targets_that_are_not_learned_are_not_drawn(sft: dict[str, Any]) -> None:
    """Of a conversation the model learns the answers, so the curvature is that of the answers."""
    session = sophia(sft)
    windows = torch.from_numpy(session.plan.data.batch(0, 0, 1))
    context: StepContext = session.context
    batch = context.second_pass(context.batch(windows))
    assert batch.draws is not None and not batch.learned.all()
    assert batch.predicted == context.batch(windows).predicted
    step(session, 0)
    assert curvature(session).any()


def test_curvature_that_overflows_in_fp16_is_not_read(settings: dict[str, Any]) -> None:
    session = sophia(settings, precision="fp16")
    session.context.loss_scale.value = 2.0**60
    assert step(session, 0).skipped
    assert not session.optimizers[0].state
    session.context.loss_scale.value = 2.0**8
    assert not step(session, 0).skipped
    assert curvature(session).isfinite().all() and curvature(session).any()


def test_sophia_is_refused_for_preferences(dpo: dict[str, Any]) -> None:
    dpo["training"]["optimizer"] = {"kind": "sophia"}
    with pytest.raises(
        ValueError, match=r"optimizer\.kind sophia .*objective dpo has a loss per pair: choose adamw"
    ):
        RunConfig.model_validate(dpo)
