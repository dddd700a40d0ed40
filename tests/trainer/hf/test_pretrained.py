"""Training goes on from weights of transformers, and refuses those it would compute otherwise."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.trainer import models
from tests.trainer.parallel.processes import train
from tests.trainer.trained import trained
from trainer import hf
from trainer.config import ModelConfig, PretrainedConfig, RunConfig, load_run_config
from trainer.hf import Pretrained
from trainer.run.loop import DONE, run
from trainer.system.errors import TrainerError

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 310}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2}
ROPE = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0}
ROPE |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
OURS = {**models.SHAPE, "norm_eps": 1e-6, "qk_norm": False}


def write(directory: Path, family: str, tied: bool, shard_size: str = "1GB") -> PreTrainedModel:
    """A model as transformers makes and saves it."""
    torch.manual_seed(0)
    common = {**SHAPE, "tie_word_embeddings": tied, "initializer_range": 0.2, "max_position_embeddings": 128}
    if family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**common, rope_parameters=ROPE))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**common, head_dim=16))
    model.save_pretrained(directory, max_shard_size=shard_size)
    return model.eval()


def ours(family: str, tied: bool) -> dict[str, Any]:
    if family == "qwen3":
        return {**OURS, "tie_embeddings": tied, "qk_norm": True, "head_dim": 16}
    scaling = {key: value for key, value in ROPE.items() if key != "rope_theta"}
    return {**OURS, "tie_embeddings": tied, "rope_theta": ROPE["rope_theta"], "rope_scaling": scaling}


@pytest.mark.parametrize(("family", "tied"), [("llama", False), ("qwen3", True)])
def test_a_model_of_transformers_is_read_trained_and_opened_again(
    settings: dict[str, Any], tmp_path: Path, family: str, tied: bool
) -> None:
    peer = write(tmp_path / "from", family, tied, shard_size="20KB")
    assert len(list((tmp_path / "from").glob("*.safetensors"))) > 1
    tokens = torch.randint(0, 300, (2, 100), generator=torch.Generator().manual_seed(0))
    model = hf.load_model(tmp_path / "from", torch.device("cpu"))
    torch.testing.assert_close(model.logits(model(tokens)), peer(tokens).logits, rtol=1e-5, atol=1e-5)

    start, still = {"path": str(tmp_path / "from")}, {"kind": "adamw", "lr": 1e-12, "weight_decay": 0.0}
    trained(settings, model=ours(family, tied), pretrained=start, max_tokens=2 * 256, optimizer=still)
    (checkpoint,) = Path(settings["run_dir"]).glob("checkpoints/*")
    again = AutoModelForCausalLM.from_pretrained(checkpoint / "hf")
    # So small a learning rate leaves the weights where they were: the logits show that they were the
    # pretrained ones.
    torch.testing.assert_close(again(tokens).logits, peer(tokens).logits[..., :300], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "said",
    [
        {"sliding_window": None, "hidden_act": "swish"},
        {"sliding_window": 128},
        {"sliding_window": None, "use_sliding_window": True, "rope_theta": 1e6},
    ],
    ids=str,
)
def test_a_mistral_whose_window_holds_its_context_is_read_as_transformers_reads_it(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    context = {"max_position_embeddings": 128, "initializer_range": 0.2}
    MistralForCausalLM(MistralConfig(**{**SHAPE, **context, **said})).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **said}))
    peer = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.randint(0, 300, (2, 128), generator=torch.Generator().manual_seed(0))
    model = hf.load_model(tmp_path, torch.device("cpu"))
    torch.testing.assert_close(model.logits(model(tokens)), peer(tokens).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"])
def test_a_config_that_says_little_has_the_defaults_of_transformers(tmp_path: Path, family: str) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 32, "max_position_embeddings": 128}
    said = {"model_type": family, **sizes, "num_hidden_layers": 1, "intermediate_size": 48}
    (tmp_path / "config.json").write_text(json.dumps(said))
    ours, theirs = hf.model_config(tmp_path), AutoConfig.from_pretrained(tmp_path)
    assert (ours.n_kv_heads, ours.head_dim) == (theirs.num_key_value_heads, theirs.head_dim)
    assert (ours.norm_eps, ours.tie_embeddings) == (theirs.rms_norm_eps, theirs.tie_word_embeddings)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]


def test_a_directory_that_says_something_twice_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    write(tmp_path / "from", "llama", tied=False, shard_size="20KB")  # an earlier model in several files
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    twice = {"rope_parameters": None, "rope_scaling": scaling, "original_max_position_embeddings": 16}
    path = tmp_path / "from" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **twice}))
    weights = AutoModelForCausalLM.from_pretrained(tmp_path / "from").state_dict()
    later = {name: tensor * 1.5 for name, tensor in weights.items()}
    save_file(later, tmp_path / "from" / "model.safetensors", metadata={"format": "pt"})

    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "from")
    tokens = torch.arange(128)[None]
    model = hf.load_model(tmp_path / "from", torch.device("cpu"))
    torch.testing.assert_close(model.logits(model(tokens)), peer(tokens).logits, rtol=1e-4, atol=1e-4)


def test_a_head_that_is_said_to_be_tied_but_is_another_one_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "llama", tied=False)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tie_word_embeddings": True}))
    with pytest.raises(TrainerError, match=r"ties lm_head.weight .* set tie_word_embeddings to false"):
        hf.load_model(tmp_path, torch.device("cpu"))
    weights = load_file(tmp_path / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert hf.load_model(tmp_path, torch.device("cpu")).config.tie_embeddings


def test_training_goes_on_from_any_directory_and_keeps_the_longer_context(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "from", "llama", tied=False)
    monkeypatch.chdir(tmp_path)
    settings["training"] |= {"model": ours("llama", False), "pretrained": {"path": "from"}}
    settings["training"] |= {"max_tokens": 2 * 256, "optimizer": {"kind": "adamw"}}
    trained(settings)
    monkeypatch.chdir("/")
    run_dir = Path(settings["run_dir"])
    written = load_run_config(run_dir / "config.yaml", ["training.max_tokens=1024"])
    assert written.training.pretrained == PretrainedConfig(path=tmp_path / "from")
    assert run(written, allow_changes=True) == DONE
    exported = hf.read_config(run_dir / "checkpoints/step-00000004/hf")
    assert settings["training"]["seq_len"] == 32 and exported["max_position_embeddings"] == 128
    monkeypatch.setenv("HOME", str(tmp_path))
    settings["training"]["pretrained"]["path"] = "~/from"
    assert RunConfig.model_validate(settings).training.pretrained == written.training.pretrained


def test_a_number_that_is_not_finite_is_found_before_training_starts(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    write(tmp_path / "from", "llama", tied=False)
    weights = load_file(tmp_path / "from" / "model.safetensors")
    weights["model.embed_tokens.weight"][299, 3] = float("nan")
    save_file(weights, tmp_path / "from" / "model.safetensors", metadata={"format": "pt"})
    settings["training"] |= {"model": ours("llama", False), "pretrained": {"path": str(tmp_path / "from")}}
    with pytest.raises(TrainerError, match=r"from: model\.embed_tokens\.weight holds numbers that are NaN"):
        run(RunConfig.model_validate(settings))
    assert not any(path.is_file() and path.stat().st_size for path in Path(settings["run_dir"]).rglob("*"))


@pytest.mark.slow
def test_weights_that_one_process_cannot_load_end_every_process_with_its_sentence(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    for rank in range(2):  # as on two nodes that each have a copy of the weights
        write(tmp_path / str(rank) / "from", "llama", tied=False)
    damaged = tmp_path / "1" / "from" / "model.safetensors"
    weights = load_file(damaged)
    del weights["model.norm.weight"]
    save_file(weights, damaged, metadata={"format": "pt"})
    settings["training"] |= {"model": ours("llama", False), "pretrained": {"path": "/proc/self/cwd/from"}}
    assert train(settings, tmp_path / "run", 2, before=partial(_enter, tmp_path)) == [1, 1]
    told = "errors.TrainerError: /proc/self/cwd/from: tensors of the model are missing: model.norm.weight"
    for rank in range(2):
        assert told in (tmp_path / str(rank) / "said").read_text()


def _enter(nodes: Path, config: RunConfig) -> None:
    os.chdir(nodes / os.environ["RANK"])
    with Path("said").open("w") as said:
        os.dup2(said.fileno(), 2)


def find(config: RunConfig, directory: Path, model: dict[str, Any]) -> Pretrained:
    return Pretrained.find(PretrainedConfig(path=directory), ModelConfig.model_validate(model), config.data)


def test_the_identity_of_weights_is_their_content(config: RunConfig, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, "llama", tied=False)
    first, second = (find(config, tmp_path / name, ours("llama", False)).sha256 for name in ("a", "b"))
    assert first == second
    weights = tmp_path / "b" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert find(config, tmp_path / "b", ours("llama", False)).sha256 != first


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "gemma"}, "model_type 'gemma' is not supported; use one of llama, mistral, qwen3"),
        ({"model_type": "mistral", "sliding_window": 127}, "sliding_window 127 is not supported, since"),
        ({"model_type": "mistral", "max_position_embeddings": 8192}, "sliding_window 4096 is not supported"),
        ({"attention_bias": True}, "attention_bias True is not supported"),
        ({"is_causal": False}, "is_causal False is not supported"),
        ({"is_causal": None}, "is_causal None is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"use_sliding_window": True, "sliding_window": 64}, "sliding_window 64 is not supported"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "rope_scaling: .*'dynamic'",
        ),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"num_hidden_layers": 3}, r"must have the pretrained model's shape; set n_layers: 3 \(now 2\)"),
        ({"vocab_size": None}, "vocab_size is None, not a whole number from 1"),
        ({"max_position_embeddings": "long"}, "max_position_embeddings is 'long', not a whole number"),
        ({"rope_parameters": [1]}, r"the rotary embeddings are described by \[1\], not by a JSON object"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\] is not supported"),
        ({"vocab_size": 200}, "the model has 200 tokens, but the data's tokenizer has 300"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused_by_name(
    config: RunConfig, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    write(tmp_path / "from", "llama", tied=False)
    path = tmp_path / "from" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(TrainerError, match=says):
        find(config, tmp_path / "from", ours("llama", False))


def test_another_tokenizer_than_the_datas_is_refused(config: RunConfig, tmp_path: Path) -> None:
    write(tmp_path / "from", "llama", tied=False)
    text = (config.data.tokenizer / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "from" / "tokenizer.json").write_text(text, encoding="utf-8")
    find(config, tmp_path / "from", ours("llama", False))
    (tmp_path / "from" / "tokenizer.json").write_text(text[:100], encoding="utf-8")
    with pytest.raises(TrainerError, match=r"from/tokenizer\.json: cannot be read as a tokenizer"):
        find(config, tmp_path / "from", ours("llama", False))
    (tmp_path / "from" / "tokenizer.json").write_text(text.replace("[EOT]", "[END]"), encoding="utf-8")
    with pytest.raises(TrainerError, match=r"token '\[EOT\]' has id none, but 3 in"):
        find(config, tmp_path / "from", ours("llama", False))


def test_a_run_that_is_named_in_place_of_its_model_is_told_where_the_model_is(
    config: RunConfig, tmp_path: Path
) -> None:
    model = tmp_path / "run" / "checkpoints" / "step-00000004" / "hf"
    write(model, "llama", tied=False)
    for named in (model.parents[2], model.parent):
        with pytest.raises(TrainerError, match=rf"holds no config\.json: name {model}, which is in it"):
            find(config, named, ours("llama", False))


def test_files_that_are_missing_or_cut_short_are_named(config: RunConfig, tmp_path: Path) -> None:
    write(tmp_path / "from", "llama", tied=False)
    weights = tmp_path / "from" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(TrainerError, match=r"model\.safetensors: cannot be read"):
        hf.load_model(tmp_path / "from", torch.device("cpu"))
    weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(
        TrainerError, match=r"holds neither model\.safetensors nor .*; convert other formats to safetensors"
    ):
        find(config, tmp_path / "from", ours("llama", False))


@pytest.mark.parametrize(
    "size", ["hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings"]
)
@pytest.mark.parametrize("number", [10**9, 2**31 - 1])
def test_a_model_that_no_memory_can_hold_is_refused_before_it_is_allocated(
    tmp_path: Path, size: str, number: int
) -> None:
    write(tmp_path / "from", "llama", tied=False)
    path = tmp_path / "from" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), size: number, "head_dim": 8}))
    with pytest.raises(
        TrainerError, match=r"from/config\.json: a model of .* takes .* GB: correct its sizes"
    ):
        hf.load_model(tmp_path / "from", torch.device("cpu"))
