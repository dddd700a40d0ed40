"""One number gives a whole training section: that of nanochat's laws, and what is set stays."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import TrainingConfig, depth


def training(model: Any, **settings: Any) -> TrainingConfig:
    every = {key: {"every_tokens": 1 << 20} for key in ("checkpoint", "evaluation")}
    given = {"model": model, "seq_len": 2048, "micro_batch_size": 32, **every}
    return TrainingConfig.model_validate(given | settings)


def test_depth_12_is_the_reference_that_nanochat_was_tuned_at() -> None:
    found = training({"depth": 12})
    assert (found.model.n_layers, found.model.d_model, found.model.head_dim) == (12, 768, 128)
    assert found.global_batch_tokens == 524_288
    # 12 x (84,934,656 in blocks + 25,165,824 in the head), in whole steps.
    assert found.max_tokens == round(12 * 110_100_480 / 524_288) * 524_288
    assert found.optimizer.muon_lr == 0.02 and found.optimizer.lr == 0.008
    assert found.optimizer.weight_decay == pytest.approx(0.28)
    assert [group.lr_multiplier * found.optimizer.lr for group in found.optimizer.groups] == pytest.approx(
        [0.3, 0.008]
    )
    assert found.schedule.decay_fraction == 0.65 and found.schedule.min_lr_ratio == 0.05


def test_deeper_models_have_larger_batches_and_rates_to_match() -> None:
    found = training({"depth": 20})
    # nanochat at 92d63d4 says the same of --depth 20: 2^20 tokens a step, decay 0.28 x sqrt(2) x D12 / D20.
    assert (found.model.d_model, found.model.n_heads, found.global_batch_tokens) == (1280, 10, 2**20)
    assert found.optimizer.muon_lr == pytest.approx(0.02 * 2**0.5)
    assert found.optimizer.lr == pytest.approx(0.008 * 2**0.5 * (768 / 1280) ** 0.5)
    share = depth.tokens(12) / depth.tokens(20)
    assert found.optimizer.weight_decay == pytest.approx(0.28 * 2**0.5 * share)
    assert found.max_tokens / found.model.parameters(32_768) == pytest.approx(10.9, abs=0.1)


def test_what_is_set_stays_and_the_rest_follows_it() -> None:
    model = {"depth": 4, "n_kv_heads": 1, "tie_embeddings": True}
    found = training(model, seq_len=512, micro_batch_size=3, optimizer={"muon_lr": 0.01})
    assert (found.model.d_model, found.model.n_kv_heads) == (256, 1)
    assert found.global_batch_tokens % (512 * 3) == 0
    assert found.optimizer.muon_lr == 0.01 and found.optimizer.weight_decay > 0.28
    assert [group.pattern for group in found.optimizer.groups] == ["*embed_tokens*"]
    assert training({"depth": 4}, optimizer={"kind": "adamw"}).optimizer.lr == 3e-3


@pytest.mark.parametrize("model", [{"depth": 0}, {"depth": "deep"}, {"depth": 4, "size": "tiny"}])
def test_what_is_no_depth_is_refused(model: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"a whole number from 1|leave out one"):
        training(model)
