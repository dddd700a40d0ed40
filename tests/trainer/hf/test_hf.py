"""What is exported is what was trained: transformers opens it and computes the same."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from tests.trainer.models import small
from trainer import hf
from trainer.__main__ import COMMANDS
from trainer.model.llama import Llama
from trainer.model.loss import summed_cross_entropy
from trainer.system.errors import TrainerError

SHAPES: dict[str, dict[str, Any]] = {
    "multi-head": {"n_kv_heads": 4},
    "grouped": {"n_kv_heads": 2},
    "multi-query": {"n_kv_heads": 1},
    "tied": {"n_kv_heads": 2, "tie_embeddings": True},
    "qk-norm": {"n_kv_heads": 2, "qk_norm": True},
    "qk-norm, tied": {"qk_norm": True, "tie_embeddings": True, "rope_theta": 5e5, "norm_eps": 1e-6},
    "heads wider than the model": {"n_kv_heads": 2, "head_dim": 16},
    "qk-norm, wide heads": {"n_kv_heads": 2, "head_dim": 16, "qk_norm": True},
}
CONTEXT = "original_max_position_embeddings"
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "llama3": {"factor": 8.0, CONTEXT: 256, "low_freq_factor": 2.0, "high_freq_factor": 8.0},
    "yarn": {"factor": 3.0, CONTEXT: 512},
    "yarn, all set": {"factor": 4.0, CONTEXT: 64, "beta_fast": 16.0, "attention_factor": 1.2},
}


Export = Callable[[Llama], Path]


def make(context: int = 96, **shape: Any) -> Llama:
    return small(context=context, std=0.2, **{"n_kv_heads": 4, "qk_norm": False, **shape})


@pytest.fixture
def export(corpus_dir: Path, tmp_path: Path) -> Export:
    """Exports a model; the directory."""

    def to_disk(model: Llama) -> Path:
        hf.export(model, corpus_dir / "tokenizer", bot_id=2, eot_id=3, destination=tmp_path / "hf")
        return tmp_path / "hf"

    return to_disk


# Importing it takes longer than a short answer.
OPENS_WITHOUT_COMPILER = """
import sys, torch
from pathlib import Path
from trainer.hf import load_model
model = load_model(Path(sys.argv[1]), torch.device("cpu"))
with torch.no_grad():
    model.logits(model(torch.zeros(1, 4, dtype=torch.int64)))
assert not {"torch._dynamo", "sympy"} & sys.modules.keys()
"""


def test_a_model_is_opened_without_pytorchs_compiler(export: Export) -> None:
    subprocess.run([sys.executable, "-c", OPENS_WITHOUT_COMPILER, str(export(make()))], check=True)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("backend", ["math", "sdpa"])
def test_transformers_computes_the_same_logits_and_gradients(
    export: Export, shape: dict[str, Any], backend: str
) -> None:
    model = make(**shape, backend=backend)
    made = export(model)
    peer = AutoModelForCausalLM.from_pretrained(made)
    tokens = torch.randint(0, 300, (2, 96), generator=torch.Generator().manual_seed(0))

    hidden = model(tokens)
    theirs = peer(tokens).logits
    torch.testing.assert_close(model.logits(hidden), theirs, rtol=1e-5, atol=1e-5)

    summed_cross_entropy(
        hidden[:, :-1].flatten(0, 1), model.lm_head.weight, tokens[:, 1:].flatten(), 300
    ).div(190).backward()
    torch.nn.functional.cross_entropy(theirs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    peers = dict(peer.named_parameters())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(
            parameter.grad[: len(peers[name])], peers[name].grad, rtol=1e-5, atol=1e-5, msg=name
        )


@pytest.mark.parametrize("scaling", ["none", *SCALINGS])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_scaled_rotations_are_those_of_transformers_at_long_positions(
    export: Export, scaling: str, qk_norm: bool
) -> None:
    shape: dict[str, Any] = {"n_layers": 1, "head_dim": 32, "n_kv_heads": 1, "qk_norm": qk_norm}
    if scaling in SCALINGS:
        shape["rope_scaling"] = {"rope_type": scaling.partition(",")[0], **SCALINGS[scaling]}
    model = make(1536, backend="sdpa", **shape)
    made = export(model)
    peer = AutoModelForCausalLM.from_pretrained(made)
    tokens = torch.randint(0, 300, (1, 1536), generator=torch.Generator().manual_seed(0))
    ours, theirs = model.logits(model(tokens)), peer(tokens).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for logits in (ours, theirs):
        logits.square().mean().backward()
    mine, other = (one.model.layers[0].self_attn.q_proj.weight.grad for one in (model, peer))
    assert mine is not None
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
    assert hf.model_config(made) == model.config


def test_the_model_without_its_head_opens_too(export: Export) -> None:
    model, tokens = make(), torch.arange(50)[None]
    made = export(model)
    peer = AutoModel.from_pretrained(made)
    torch.testing.assert_close(peer(tokens).last_hidden_state, model(tokens), rtol=1e-5, atol=1e-5)


def test_an_export_that_computes_something_else_is_found(export: Export) -> None:
    model = make()
    made = export(model)
    hf.check_export(model, made)
    path = made / "config.json"
    path.write_text(path.read_text().replace("10000.0", "20000.0"))
    with pytest.raises(TrainerError, match="logits of the export differ from those of the trained model by"):
        hf.check_export(model, made)


def test_a_model_in_several_files_is_checked_beside_transformers(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make(tie_embeddings=True)
    made = export(model)
    peer = AutoModelForCausalLM.from_pretrained(made)
    peer.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert COMMANDS["check"](["--model", str(tmp_path / "shards")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tensors"] == len(list(model.parameters()))
    assert found["parameters"] == model.config.parameters(300)
    assert found["finite"] and found["difference"] < found["allowed_difference"] < 0.01


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"head_dim": None, "hidden_act": None}),
        ("config.json", {"eos_token_id": "3"}),
        ("generation_config.json", []),
    ],
)
def test_a_model_that_transformers_does_not_open_is_told_in_a_sentence(
    export: Export, name: str, content: Any
) -> None:
    made = export(make())
    path = made / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **content} if content else content))
    with pytest.raises(TrainerError, match=r"hf: transformers does not open the model: .*\S"):
        COMMANDS["check"](["--model", str(made)])


def test_an_export_that_is_not_finite_is_told(export: Export) -> None:
    model = make()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    made = export(model)
    found = hf.check_with_transformers(made)
    assert not found.finite and not found.passed


def test_loading_an_export_gives_the_same_bits_and_zero_padding(export: Export) -> None:
    model, other = make(), make()
    made = export(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(7.0)
    hf.load_weights(other, made)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert model.lm_head.weight.shape[0] == 320
    assert not model.lm_head.weight[300:].any()


def test_the_tokenizer_beside_the_model_opens_and_knows_its_special_tokens(export: Export) -> None:
    made = export(make())
    tokenizer = AutoTokenizer.from_pretrained(made)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (2, 3)
    assert tokenizer.decode(tokenizer("a small step").input_ids) == "a small step"


def test_weights_of_another_shape_are_refused(export: Export) -> None:
    made = export(make())
    with pytest.raises(TrainerError, match="down_proj"):
        hf.load_weights(make(d_ff=64), made)
    with pytest.raises(TrainerError, match=r"layers\.2"):
        hf.load_weights(make(n_layers=3), made)


def test_a_model_that_transformers_does_not_compute_is_refused_there_and_read_here(export: Export) -> None:
    model = make(qk_norm=True, attention_sinks=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "sinks" in name:
                parameter.copy_(torch.tensor([0.5, -1.0, 2.0, 0.0]))
    made = export(model)
    with pytest.raises(ValueError, match="model type `groundwork`"):
        AutoModelForCausalLM.from_pretrained(made)
    loaded, tokens = hf.load_model(made, torch.device("cpu")), torch.arange(90)[None]
    assert loaded.config == model.config
    assert torch.equal(loaded.logits(loaded(tokens)), model.logits(model(tokens)))
    hf.check_export(model, made)
    assert hf.check_with_transformers(made).difference is None


def test_the_exported_configuration_gives_the_model_back(export: Export) -> None:
    model = make(qk_norm=True, n_kv_heads=2)
    made = export(model)
    loaded = hf.load_model(made, torch.device("cpu"))
    assert (loaded.config, loaded.vocab_size, loaded.max_length) == (model.config, 300, 96)
    (made / "config.json").write_text(json.dumps([])[:-1])
    with pytest.raises(TrainerError, match=r"config\.json"):
        hf.load_model(made, torch.device("cpu"))
