"""Dropout is a function of seed, sample and place: it does not depend on how a batch is cut."""

from typing import Any

import pytest
import torch

from tests.trainer.steps import new_session, step
from trainer.model.dropout import Dropout, keys_at, sample_keys

SHARE = 0.1


def test_its_share_of_elements_is_dropped_independently_of_place_sample_and_neighbor() -> None:
    keys, x = sample_keys(3, first_sample=0, samples=64), torch.ones(64, 128, 64)
    kept = torch.stack([Dropout(SHARE)(x, keys_at(place, keys)) for place in range(6)])
    assert torch.equal(kept.unique(), torch.tensor([0.0, 1 / (1 - SHARE)]))
    dropped = (kept == 0).double().view(6 * 64, -1) - SHARE
    assert abs(dropped.mean()) < 1e-3
    correlations = dropped @ dropped.T / dropped.shape[1] / (SHARE * (1 - SHARE))
    # 73,536 pairs of masks of 8,192 elements: the largest of as many normal values is near 4.5 deviations.
    assert correlations.fill_diagonal_(0).abs().max() < 6 / 8192**0.5
    for shift in (1, 2, 64, 128):
        assert abs((dropped[:, shift:] * dropped[:, :-shift]).mean()) / (SHARE * (1 - SHARE)) < 3e-3


def gradients(settings: dict[str, Any], compiled: bool = False, **training: Any) -> dict[str, torch.Tensor]:
    """What the first step adds to the momentum of each weight."""
    optimizer = {"kind": "adamw", "betas": [0.5, 0.5], "max_grad_norm": None}
    changes = {"dropout": SHARE, "init": {"zero_output": False}, "optimizer": optimizer, "compile": compiled}
    session = new_session({**settings, "training": settings["training"] | changes | training})
    step(session, 0)
    states = session.optimizers[0].state
    return {name: states[parameter]["exp_avg"] for name, parameter in session.model.named_parameters()}


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=tolerance, atol=tolerance, msg=name)


def test_gradients_depend_neither_on_the_micro_batch_nor_on_what_is_recomputed(
    settings: dict[str, Any],
) -> None:
    whole = gradients(settings)
    assert_same(gradients(settings, micro_batch_size=2), whole, 1e-6)
    assert_same(gradients(settings, activation_checkpointing="full"), whole, 0)
    assert (gradients(settings, dropout=0.0)["lm_head.weight"] - whole["lm_head.weight"]).abs().max() > 1e-3


def test_all_blocks_are_compiled_as_one(settings: dict[str, Any]) -> None:
    settings["training"] |= {"dropout": SHARE, "compile": False}
    settings["training"]["model"]["n_layers"] = 12
    session = new_session(settings)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for block in session.model.model.layers:
        block.compile(fullgraph=True, dynamic=False, backend="eager")
    step(session, 0)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
def test_a_compiled_model_drops_the_same(settings: dict[str, Any]) -> None:
    assert_same(gradients(settings, compiled=True), gradients(settings), 1e-6)
