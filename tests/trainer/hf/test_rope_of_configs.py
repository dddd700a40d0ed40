"""The rotations that config.json asks for are those of transformers, however it says them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from trainer import hf
from trainer.model.rope import rotary_tables

POSITIONS = 600
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "vocab_size": 310,
}
SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 256}
FACTOR = st.sampled_from([1.0, 2.0, 40])
CONTEXT = {"original_max_position_embeddings": st.sampled_from([32, 64])}
OF_KIND: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": FACTOR},
    "llama3": {
        "factor": FACTOR,
        "low_freq_factor": st.sampled_from([1, 1.0]),
        "high_freq_factor": st.sampled_from([2, 4.0]),
        **CONTEXT,
    },
    "yarn": {"factor": FACTOR, **CONTEXT},
}
SCALE = st.sampled_from([None, 0.707, 1.0, 1])
YARN = {
    "attention_factor": st.sampled_from([None, 1.0, 1.3]),
    "beta_fast": st.sampled_from([None, 16, 32.0]),
    "beta_slow": st.sampled_from([None, 1, 2.0]),
    "mscale": SCALE,
    "mscale_all_dim": SCALE,
    "truncate": st.sampled_from([True, False, None]),
}
# Keys of other kinds and of other programs, which transformers reports and does not read.
UNREAD = st.dictionaries(
    st.sampled_from(["finetuned", "low_freq_factor", "mscale", "beta_fast", "attn_factor", "my_key"]),
    st.sampled_from([True, 3, 0.5, "x"]),
    max_size=2,
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """What config.json says of rotations, in the words of transformers 4 or 5, or of both."""
    kind = draw(st.sampled_from([*OF_KIND]))
    optional = YARN if kind == "yarn" else {}
    read = draw(st.fixed_dictionaries(OF_KIND[kind], optional=optional))
    unread = {key: value for key, value in draw(UNREAD).items() if key not in {*OF_KIND[kind], *optional}}
    scaling = read | unread
    named = {draw(st.sampled_from(["rope_type", "type"])): kind}
    theta = draw(st.sampled_from([1e4, 500000]))
    if draw(st.booleans()):
        return {"rope_parameters": {"rope_theta": theta, "rope_type": kind, **scaling}}
    # An export of ours has both, and people change the one that they know.
    other = {"rope_parameters": {"rope_theta": theta, "rope_type": "linear", "factor": 8.0}}
    beside = other if kind != "default" and draw(st.booleans()) else {}
    return {"rope_theta": theta, "rope_scaling": None if kind == "default" else named | scaling, **beside}


@given(said=configs())
@settings(max_examples=100, deadline=None)
def test_every_way_to_say_rotations_is_read_as_transformers_reads_it(
    tmp_path_factory: pytest.TempPathFactory, said: dict[str, Any]
) -> None:
    directory = tmp_path_factory.getbasetemp() / "rope"
    config = SHAPE | {"model_type": "llama"} | said
    theirs = LlamaRotaryEmbedding(LlamaConfig.from_dict(json.loads(json.dumps(config))))
    ours = rotary_tables(read(directory, config), POSITIONS)
    expected = theirs(torch.zeros(1), torch.arange(POSITIONS)[None])
    for table, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(table, other[0], rtol=1e-4, atol=1e-4)


def read(directory: Path, config: dict[str, Any]) -> Any:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return hf.model_config(directory)
