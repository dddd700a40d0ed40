"""What is exported is what was trained: transformers opens it and computes the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from trainer import hf
from trainer.__main__ import COMMANDS
from trainer.config import InitConfig, ModelConfig
from trainer.model.llama import Llama
from trainer.model.loss import summed_cross_entropy
from trainer.system.errors import TrainerError

SHAPES: dict[str, dict[str, Any]] = {
    "multi-head": {"n_kv_heads": 4},
    "grouped": {"n_kv_heads": 2},
    "multi-query": {"n_kv_heads": 1},
    "tied": {"n_kv_heads": 2, "tie_embeddings": True},
    "qk-norm": {"n_kv_heads": 2, "qk_norm": True},
    "qk-norm, tied, other theta": {
        "n_kv_heads": 4,
        "qk_norm": True,
        "tie_embeddings": True,
        "rope_theta": 5e5,
        "norm_eps": 1e-6,
    },
    "heads wider than the model": {"n_kv_heads": 2, "head_dim": 16},
    "qk-norm, wide heads": {"n_kv_heads": 2, "head_dim": 16, "qk_norm": True},
}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 256,
        "low_freq_factor": 2.0,
        "high_freq_factor": 8.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 512},
    "yarn, all set": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 16.0,
        "attention_factor": 1.2,
    },
}


def make(vocab_size: int = 300, max_length: int = 96, backend: Any = "math", **shape: Any) -> Llama:
    model = Llama(
        ModelConfig(**{"n_layers": 2, "d_model": 32, "n_heads": 4, "n_kv_heads": 4, "d_ff": 48, **shape}),
        vocab_size,
        max_length,
        backend,
    )
    model.initialise(InitConfig(std=0.2, zero_output=False), seed=1)
    return model


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("backend", ["math", "sdpa"])
def test_transformers_computes_the_same_logits_and_gradients(
    tmp_path: Path, corpus_dir: Path, shape: dict[str, Any], backend: str
) -> None:
    model = make(**shape, backend=backend)
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
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


@pytest.mark.parametrize("scaling", [None, *SCALINGS.values()], ids=["none", *SCALINGS.keys()])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_scaled_rotations_are_those_of_transformers_at_long_positions(
    tmp_path: Path, corpus_dir: Path, scaling: dict[str, Any] | None, qk_norm: bool
) -> None:
    model = make(
        max_length=1536,
        rope_scaling=scaling,
        qk_norm=qk_norm,
        backend="sdpa",
        n_layers=1,
        head_dim=32,
        n_kv_heads=1,
    )
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    tokens = torch.randint(0, 300, (1, 1536), generator=torch.Generator().manual_seed(0))
    ours, theirs = model.logits(model(tokens)), peer(tokens).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for logits in (ours, theirs):
        logits.square().mean().backward()
    assert model.model.layers[0].self_attn.q_proj.weight.grad is not None
    gradient = peer.model.layers[0].self_attn.q_proj.weight.grad
    torch.testing.assert_close(
        model.model.layers[0].self_attn.q_proj.weight.grad, gradient, rtol=1e-5, atol=1e-5
    )
    assert hf.model_config(tmp_path / "hf") == model.config


def test_the_model_without_its_head_opens_too(tmp_path: Path, corpus_dir: Path) -> None:
    model, tokens = make(), torch.arange(50)[None]
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    torch.testing.assert_close(
        AutoModel.from_pretrained(tmp_path / "hf")(tokens).last_hidden_state,
        model(tokens),
        rtol=1e-5,
        atol=1e-5,
    )


def test_an_export_that_computes_something_else_is_found(tmp_path: Path, corpus_dir: Path) -> None:
    model = make()
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    hf.check_export(model, tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    path.write_text(path.read_text().replace("10000.0", "20000.0"))
    with pytest.raises(TrainerError, match="logits of the export differ from those of the trained model by"):
        hf.check_export(model, tmp_path / "hf")


def test_a_model_in_several_files_is_checked_beside_transformers(
    tmp_path: Path, corpus_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make(tie_embeddings=True)
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    AutoModelForCausalLM.from_pretrained(tmp_path / "hf").save_pretrained(
        tmp_path / "shards", max_shard_size="20KB"
    )
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert COMMANDS["check"](["--model", str(tmp_path / "shards")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tensors"] == len(list(model.parameters())) and found[
        "parameters"
    ] == model.config.parameters(300)
    assert found["finite"] and found["difference"] < found["allowed_difference"] < 0.01


def test_an_export_that_is_not_finite_is_told(tmp_path: Path, corpus_dir: Path) -> None:
    model = make()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    found = hf.check_with_transformers(tmp_path / "hf")
    assert not found.finite and not found.passed


def test_loading_an_export_gives_the_same_bits_and_zero_padding(tmp_path: Path, corpus_dir: Path) -> None:
    model, other = make(), make()
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(7.0)
    hf.load_weights(other, tmp_path / "hf")
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert model.lm_head.weight.shape[0] == 320
    assert not model.lm_head.weight[300:].any()


def test_the_tokenizer_beside_the_model_opens_and_knows_its_special_tokens(
    tmp_path: Path, corpus_dir: Path
) -> None:
    hf.export(make(), corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (2, 3)
    assert tokenizer.decode(tokenizer("a small step").input_ids) == "a small step"


def test_weights_of_another_shape_are_refused(tmp_path: Path, corpus_dir: Path) -> None:
    hf.export(make(), corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    with pytest.raises(TrainerError, match="down_proj"):
        hf.load_weights(make(d_ff=64), tmp_path / "hf")
    with pytest.raises(TrainerError, match=r"layers\.2"):
        hf.load_weights(make(n_layers=3), tmp_path / "hf")


def test_a_model_that_transformers_does_not_compute_is_refused_there_and_read_here(
    tmp_path: Path, corpus_dir: Path
) -> None:
    model = make(qk_norm=True, attention_sinks=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "sinks" in name:
                parameter.copy_(torch.tensor([0.5, -1.0, 2.0, 0.0]))
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    with pytest.raises(ValueError, match="model type `groundwork`"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    loaded, tokens = hf.load_model(tmp_path / "hf", torch.device("cpu")), torch.arange(90)[None]
    assert loaded.config == model.config
    assert torch.equal(loaded.logits(loaded(tokens)), model.logits(model(tokens)))
    hf.check_export(model, tmp_path / "hf")
    assert hf.check_with_transformers(tmp_path / "hf").difference is None


def test_the_exported_configuration_gives_the_model_back(tmp_path: Path, corpus_dir: Path) -> None:
    model = make(qk_norm=True, n_kv_heads=2)
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    loaded = hf.load_model(tmp_path / "hf", torch.device("cpu"))
    assert (loaded.config, loaded.vocab_size, loaded.max_length) == (model.config, 300, 96)
    (tmp_path / "hf" / "config.json").write_text(json.dumps([])[:-1])
    with pytest.raises(TrainerError, match=r"config\.json"):
        hf.load_model(tmp_path / "hf", torch.device("cpu"))
