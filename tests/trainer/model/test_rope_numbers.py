"""Settings of rotary embeddings are refused, or give angles that are numbers."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trainer.config.model import Llama3Scaling, ModelConfig, YarnScaling
from trainer.model.rope import rotary_tables

SHAPE: dict[str, Any] = {"n_layers": 1, "d_model": 8, "n_heads": 2, "n_kv_heads": 2, "d_ff": 8}
EXTREME = st.sampled_from([1, 2**63 - 1, 2**63, 10**30, 1e6, 1e-6, 5e-324, 1e308, float("inf")])
NUMBER = st.one_of(EXTREME, st.floats(1e-7, 1e7), st.integers(0, 1 << 64))


def scaling(kind: str, *optional: str) -> st.SearchStrategy[dict[str, Any]]:
    needed = ["factor"] if kind == "linear" else ["factor", "original_max_position_embeddings"]
    return st.fixed_dictionaries(
        {"rope_type": st.just(kind)} | dict.fromkeys(needed, NUMBER), optional=dict.fromkeys(optional, NUMBER)
    )


@settings(max_examples=400, deadline=None)
@given(
    NUMBER,
    st.one_of(
        scaling("linear"),
        scaling("llama3", "low_freq_factor", "high_freq_factor"),
        scaling("yarn", "beta_fast", "beta_slow", "attention_factor"),
    ),
)
def test_odd_settings_are_refused_or_give_finite_angles(theta: float, stretched: dict[str, Any]) -> None:
    try:
        config = ModelConfig(**SHAPE, rope_theta=theta, rope_scaling=stretched)
    except ValidationError:
        return
    for table in rotary_tables(config, 16):
        assert table.isfinite().all() and table.dtype == torch.float32


@pytest.mark.parametrize("number", [1e-6, 1.0, 1e6])
def test_all_of_the_range_that_gives_finite_angles_is_taken(number: float) -> None:
    context = {"factor": max(number, 1.0), "original_max_position_embeddings": 1}
    YarnScaling(rope_type="yarn", beta_fast=number, beta_slow=number, attention_factor=number, **context)
    Llama3Scaling(rope_type="llama3", **context)
