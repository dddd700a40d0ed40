"""llama.cpp and gguf's own reader read the GGUF file."""

import json
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.stages.bpe import TokenizerParams
from pipeline.stages.bpe.train import files, train
from pipeline.steps.export import gguf
from pipeline.steps.model.export import _prepare_tokenizer
from pipeline.store.errors import PipelineError
from tests.llama_cpp import LlamaCpp
from trainer import hf
from trainer.config import InitConfig, ModelConfig
from trainer.model.llama import Llama
from trainer.system.errors import TrainerError

pytest.importorskip("gguf")
VOCAB_SIZE = 500
SHAPE = {"n_layers": 2, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "d_ff": 176, "qk_norm": False}
TEXT = "Return 12345 items: it's\n\n  the naïve café's 語 list[1:3] -- \t done!  OK\n"
YARN = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 4, "original_max_position_embeddings": 32}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"qk_norm": True, "head_dim": 32},
    "tied": {"tie_embeddings": True, "head_dim": 32},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2}},
    "llama3": {"rope_scaling": LLAMA3},
    "yarn": {"rope_scaling": YARN},
    "yarn of its own": {"rope_scaling": YARN | {"beta_fast": 16, "beta_slow": 2}},
}
TOKENIZERS: list[dict[str, Any]] = [
    {},
    {"single_digits": True},
    {"pattern": "gpt2"},
    {"pattern": "gpt2", "digits_first": True},  # SmolLM's, which is not trained here
]


def made(
    directory: Path,
    model: dict[str, Any],
    tokenizer: dict[str, Any],
    eot_id: int = 3,
    end_id: int | None = None,
) -> Path:
    """An exported model with random weights and a tokenizer trained on Python's reference."""
    settings = {key: value for key, value in tokenizer.items() if key != "digits_first"}
    trained = train([pa.array(list(topics.values()))], TokenizerParams(vocab_size=VOCAB_SIZE, **settings))
    if "digits_first" in tokenizer:
        digits = pre_tokenizers.Digits(individual_digits=True)
        trained.pre_tokenizer = pre_tokenizers.Sequence([digits, trained.pre_tokenizer])
    (directory / "tokenizer").mkdir(parents=True)
    for name, content in files(trained).items():
        (directory / "tokenizer" / name).write_text(content, encoding="utf-8")
    shape = ModelConfig.model_validate(SHAPE | model)
    with torch.device("meta"):
        llama = Llama(shape, VOCAB_SIZE, 128, "math")
    llama.materialize(torch.device("cpu"))
    llama.initialize(InitConfig(), 3)
    for name, parameter in llama.named_parameters():
        if parameter.dim() == 1:  # norms that all are 1 would hide one that is left out
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif "embed" not in name or shape.tie_embeddings:
            parameter.data *= 4
    hf.export(
        llama,
        directory / "tokenizer",
        bot_id=2,
        eot_id=eot_id,
        destination=directory / "model",
        end_id=end_id,
    )
    return directory / "model"


def test_gguf_reads_back_the_weights_and_the_tokenizer(tmp_path: Path) -> None:
    from gguf import GGUFReader

    model = made(tmp_path, MODELS["qwen3"], TOKENIZERS[0])
    counts = gguf.write(model, tmp_path / "model.gguf", "mine", lambda _: None)
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
    assert "tokenizer.ggml.eot_token_id" not in fields


def test_llama_cpp_ends_a_text_at_each_of_the_models_ends(tmp_path: Path) -> None:
    """What ends answers and what ends documents, by tokens whose names llama.cpp does not know."""
    directory = made(tmp_path, MODELS["llama"], TOKENIZERS[0], eot_id=301, end_id=300)
    gguf.write(directory, tmp_path / "model.gguf", "mine", lambda _: None)
    theirs = LlamaCpp(tmp_path / "model.gguf", VOCAB_SIZE)
    assert [theirs.ends_after(token) for token in (300, 301, 302)] == [True, True, False]


@pytest.mark.parametrize("model", MODELS)
def test_llama_cpp_computes_the_same_probabilities(model: str, tmp_path: Path) -> None:
    directory = made(tmp_path, MODELS[model], TOKENIZERS[0])
    gguf.write(directory, tmp_path / "model.gguf", "mine", lambda _: None)
    theirs = LlamaCpp(tmp_path / "model.gguf", VOCAB_SIZE)
    ids = theirs.tokens(TEXT * 2)[:100]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(directory)(torch.tensor([ids])).logits[0]
    ours = logits.log_softmax(-1).numpy()
    assert ours.std() > 0.5
    for length in (1, 2, 10, 33, 50, 75, 100):
        difference = theirs.log_probabilities(ids[:length]) - ours[length - 1]
        assert np.abs(difference).max() < 0.02 * ours.std()  # its attention keeps keys and values in fp16


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=str)
def test_llama_cpp_splits_text_into_the_same_tokens(tokenizer: dict[str, Any], tmp_path: Path) -> None:
    directory = made(tmp_path, MODELS["llama"], tokenizer)
    gguf.write(directory, tmp_path / "model.gguf", "mine", lambda _: None)
    theirs, ours = LlamaCpp(tmp_path / "model.gguf", VOCAB_SIZE), AutoTokenizer.from_pretrained(directory)
    for text in (TEXT, *list(topics.values())[:20]):
        assert theirs.tokens(text) == [2, *ours(text, add_special_tokens=False).input_ids]


def test_llama_cpp_reads_the_chat_template_of_an_older_tokenizer_as_that_of_a_new_one(tmp_path: Path) -> None:
    """Roles and parts of OpenAI's API, tools that need not be called, and a begun answer."""
    directory = made(tmp_path, MODELS["llama"], {"chat": True}, end_id=8)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings["chat_template"] = (
        "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    _prepare_tokenizer(directory, answers=True)
    gguf.write(directory, tmp_path / "model.gguf", "mine", lambda _: None)
    theirs = LlamaCpp(tmp_path / "model.gguf", VOCAB_SIZE)
    brief, hello = {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hello"}
    parts = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
    begun = {"role": "assistant", "content": "Yes, "}
    for said in ([brief, hello], [brief, parts]):
        assert theirs.prompt(said) == "[SYSTEM]Be brief.[END][USER]Hello[END][ASSISTANT]"
    assert theirs.prompt([hello, begun]) == "[USER]Hello[END][ASSISTANT]Yes, "
    tool = {"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}
    for choice in ("none", "auto"):  # clients name tools in every request
        said = theirs.prompt([hello], tools=[tool], tool_choice=choice)
        assert said == "[USER]Hello[END][ASSISTANT]"
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    with pytest.raises(HTTPError) as refused:
        theirs.prompt([hello, called, hello])
    assert b"this model has not learnt to call tool" in refused.value.read()


def test_a_tokenizer_that_llama_cpp_does_not_know_is_refused(tmp_path: Path) -> None:
    model = made(tmp_path, MODELS["llama"], TOKENIZERS[0])
    settings = json.loads((model / "tokenizer.json").read_text())
    settings["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+"
    (model / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(PipelineError, match="no counterpart of this tokenizer's pre-tokenization"):
        gguf.write(model, tmp_path / "model.gguf", "mine", lambda _: None)


def test_a_model_of_another_program_is_told_what_reads_it(tmp_path: Path) -> None:
    model = made(tmp_path, MODELS["llama"], TOKENIZERS[0])
    with pytest.raises(PipelineError, match=r"neither an exported model nor .*convert_hf_to_gguf"):
        gguf.export_gguf(model, {}, tmp_path / "out", lambda _: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
@pytest.mark.parametrize("content", [None, b"{"])
def test_half_an_export_is_told_by_the_file(name: str, content: bytes | None, tmp_path: Path) -> None:
    model = made(tmp_path, MODELS["llama"], TOKENIZERS[0])
    (model / "lineage.json").write_text("{}")
    (model / name).unlink()
    if content:
        (model / name).write_bytes(content)
    with pytest.raises((PipelineError, TrainerError), match=name):
        gguf.export_gguf(model, {}, tmp_path / "out", lambda _: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (MODELS["llama3"] | {"qk_norm": True}, "llama3 with qk_norm"),
        ({"rope_scaling": YARN | {"attention_factor": 1.1}}, r"rope_scaling\.attention_factor"),
        ({"rope_scaling": YARN | {"truncate": False}}, r"rope_scaling\.truncate"),
    ],
)
def test_a_scaling_that_llama_cpp_does_not_compute_is_refused(
    tmp_path: Path, shape: dict[str, Any], said: str
) -> None:
    model = made(tmp_path, shape, TOKENIZERS[0])
    with pytest.raises(PipelineError, match=said):
        gguf.write(model, tmp_path / "model.gguf", "mine", lambda _: None)
