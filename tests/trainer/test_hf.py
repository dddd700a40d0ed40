"""What is exported is what was trained: transformers opens it and computes the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer import hf
from trainer.config import InitConfig, ModelConfig
from trainer.errors import TrainerError
from trainer.loss import summed_cross_entropy
from trainer.model import Llama

SHAPES: dict[str, dict[str, Any]] = {
    "multi-head": {"n_kv_heads": 4},
    "grouped": {"n_kv_heads": 2},
    "multi-query": {"n_kv_heads": 1},
    "tied": {"n_kv_heads": 2, "tie_embeddings": True},
    "qk-norm": {"n_kv_heads": 2, "qk_norm": True},
    "qk-norm, tied, other theta": {"n_kv_heads": 4, "qk_norm": True, "tie_embeddings": True, "rope_theta": 5e5, "norm_eps": 1e-6},
}


def make(vocab_size: int = 300, max_length: int = 96, backend: Any = "math", **shape: Any) -> Llama:
    model = Llama(ModelConfig(**{"n_layers": 2, "d_model": 32, "n_heads": 4, "n_kv_heads": 4, "d_ff": 48, **shape}), vocab_size, max_length, backend)
    model.initialise(InitConfig(std=0.2, zero_output=False), seed=1)
    return model


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("backend", ["math", "sdpa"])
def test_transformers_computes_the_same_logits_and_gradients(tmp_path: Path, corpus_dir: Path, shape: dict[str, Any], backend: str) -> None:
    model = make(**shape, backend=backend)
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    tokens = torch.randint(0, 300, (2, 96), generator=torch.Generator().manual_seed(0))

    hidden = model(tokens)
    theirs = peer(tokens).logits
    torch.testing.assert_close(model.logits(hidden), theirs, rtol=1e-5, atol=1e-5)

    summed_cross_entropy(hidden[:, :-1].flatten(0, 1), model.lm_head.weight, tokens[:, 1:].flatten(), 300).div(190).backward()
    torch.nn.functional.cross_entropy(theirs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    peers = dict(peer.named_parameters())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad[: len(peers[name])], peers[name].grad, rtol=1e-4, atol=1e-5, msg=name)


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


def test_the_tokenizer_beside_the_model_opens_and_knows_its_special_tokens(tmp_path: Path, corpus_dir: Path) -> None:
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


def test_the_exported_configuration_gives_the_model_back(tmp_path: Path, corpus_dir: Path) -> None:
    model = make(qk_norm=True, n_kv_heads=2)
    hf.export(model, corpus_dir / "tokenizer", 2, 3, tmp_path / "hf")
    loaded = hf.load_model(tmp_path / "hf", torch.device("cpu"))
    assert (loaded.config, loaded.vocab_size, loaded.max_length) == (model.config, 300, 96)
    (tmp_path / "hf" / "config.json").write_text(json.dumps([])[:-1])
    with pytest.raises(TrainerError, match=r"config\.json"):
        hf.load_model(tmp_path / "hf", torch.device("cpu"))
