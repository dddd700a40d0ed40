"""llama.cpp reads the GGUF file where llama-cpp-python is installed, gguf's own reader otherwise."""

import json
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.stages.tokenizer import TokenizerParams
from pipeline.stages.tokenizer.train import files, train
from pipeline.steps.export import gguf as export
from trainer import hf
from trainer.config import InitConfig, ModelConfig
from trainer.model.llama import Llama

pytest.importorskip("gguf")
SHAPE = {"n_layers": 2, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 176}
TEXT = "Return 12345 items: it's\n\n  the naïve café's 語 list[1:3] -- \t done!  OK\n"
YARN = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 4, "original_max_position_embeddings": 32}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"qk_norm": True, "head_dim": 32},
    "untied": {"tie_embeddings": False, "head_dim": 32},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2}},
    "llama3": {"rope_scaling": LLAMA3},
    "yarn": {"rope_scaling": YARN},
    "yarn of its own": {"rope_scaling": YARN | {"beta_fast": 16, "beta_slow": 2}},
}
TOKENIZERS: list[dict[str, Any]] = [
    {"pattern": pattern, "single_digits": single}
    for pattern in ("llama3", "gpt2")
    for single in (False, True)
]


def made(directory: Path, model: dict[str, Any], tokenizer: dict[str, Any]) -> Path:
    """An exported model with random weights and a tokenizer trained on Python's reference."""
    params = TokenizerParams(vocab_size=500, **tokenizer)
    (directory / "tokenizer").mkdir(parents=True)
    for name, content in files(train([list(topics.values())], params), params).items():
        (directory / "tokenizer" / name).write_text(content, encoding="utf-8")
    shape = ModelConfig.model_validate(SHAPE | model)
    with torch.device("meta"):
        llama = Llama(shape, 500, 128, "math")
    llama.materialise(torch.device("cpu"))
    llama.initialise(InitConfig(), 3)
    for name, parameter in llama.named_parameters():
        if parameter.dim() == 1:  # norms that all are 1 would hide one that is left out
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif "embed" not in name:
            parameter.data *= 4
    hf.export(llama, directory / "tokenizer", 2, 3, directory / "model")
    return directory / "model"


def test_gguf_reads_back_the_weights_and_the_tokenizer(tmp_path: Path) -> None:
    from gguf import GGUFReader

    model = made(tmp_path, MODELS["qwen3"], TOKENIZERS[0])
    counts = export.write(model, tmp_path / "model.gguf", "mine", lambda _: None)
    reader = GGUFReader(tmp_path / "model.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(model)
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert counts["parameters"] == sum(parameter.numel() for parameter in theirs.parameters())
    np.testing.assert_array_equal(
        found["blk.1.attn_q.weight"].data, theirs.model.layers[1].self_attn.q_proj.weight.detach().numpy()
    )
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "qwen3" and fields["general.name"] == "mine"
    assert fields["tokenizer.ggml.tokens"][:4] == ["[UNK]", "[PAD]", "[BOT]", "[EOT]"]
    assert (fields["tokenizer.ggml.bos_token_id"], fields["tokenizer.ggml.eos_token_id"]) == (2, 3)


@pytest.mark.parametrize("model", MODELS)
def test_llama_cpp_computes_the_same_logits(model: str, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    directory = made(tmp_path, MODELS[model], TOKENIZERS[0])
    export.write(directory, tmp_path / "model.gguf", "mine", lambda _: None)
    theirs = llama_cpp.Llama(str(tmp_path / "model.gguf"), n_ctx=128, logits_all=True, verbose=False)
    ids = theirs.tokenize((TEXT * 2).encode())[:100]
    theirs.eval(ids)
    with torch.no_grad():
        ours = AutoModelForCausalLM.from_pretrained(directory)(torch.tensor([ids])).logits[0].numpy()
    scores = np.array(theirs.scores[: len(ids)])
    assert ours.std() > 0.5
    assert np.abs(scores - ours).max() < 0.02 * ours.std()  # its attention keeps keys and values in fp16
    assert (scores.argmax(1) == ours.argmax(1)).mean() > 0.98


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=str)
def test_llama_cpp_splits_text_into_the_same_tokens(tokenizer: dict[str, Any], tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    directory = made(tmp_path, MODELS["llama"], tokenizer)
    export.write(directory, tmp_path / "model.gguf", "mine", lambda _: None)
    theirs = llama_cpp.Llama(str(tmp_path / "model.gguf"), vocab_only=True, verbose=False)
    ours = AutoTokenizer.from_pretrained(directory)
    for text in (TEXT, *list(topics.values())[:20]):
        expected = [2, *ours(text, add_special_tokens=False).input_ids]
        assert theirs.tokenize(text.encode()) == expected


def test_a_tokenizer_that_llama_cpp_does_not_know_is_refused(tmp_path: Path) -> None:
    model = made(tmp_path, MODELS["llama"], TOKENIZERS[0])
    settings = json.loads((model / "tokenizer.json").read_text())
    settings["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+"
    (model / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(export.GgufError, match="no counterpart of this tokenizer's pre-tokenization"):
        export.write(model, tmp_path / "model.gguf", "mine", lambda _: None)


def test_a_model_of_our_own_type_is_refused(tmp_path: Path) -> None:
    model = made(tmp_path, {"logit_soft_cap": 30.0}, TOKENIZERS[0])
    with pytest.raises(export.GgufError, match=r"llama\.cpp does not compute"):
        export.write(model, tmp_path / "model.gguf", "mine", lambda _: None)
