"""An adapter of peft is read as the model that it and its base are together, or refused with the reason."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.trainer.hf.test_pretrained import find, ours, write
from trainer import hf
from trainer.config import RunConfig
from trainer.system.errors import TrainerError

peft = pytest.importorskip("peft")
TOKENS = torch.randint(0, 300, (2, 40), generator=torch.Generator().manual_seed(0))
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def adapt(base: Path, directory: Path, **said: Any) -> torch.Tensor:
    """Saves an adapter to `base` as peft does, whose matrices are no zeros. Returns the logits of both."""
    torch.manual_seed(1)
    given = {"r": 4, "lora_alpha": 8, "target_modules": LAYERS, **said}
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), peft.LoraConfig(**given))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.1)
    model.save_pretrained(directory)
    return model.eval()(TOKENS).logits


@given(
    said=st.fixed_dictionaries(
        {
            "r": st.integers(1, 40),
            "lora_alpha": st.sampled_from([1, 4, 0.5]),
            "use_rslora": st.booleans(),
            "target_modules": st.lists(st.sampled_from(LAYERS), min_size=1, unique=True),
            "rank_pattern": st.sampled_from([{}, {"q_proj": 2}]),
            "layers_to_transform": st.sampled_from([None, [1]]),
            "trainable_token_indices": st.sampled_from([None, [3, 7], {"embed_tokens": [299, 0]}]),
        }
    ),
    tied=st.booleans(),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_its_sum_with_the_base_computes_what_peft_computes(
    tmp_path_factory: pytest.TempPathFactory, said: dict[str, Any], tied: bool
) -> None:
    place = tmp_path_factory.mktemp("adapter")
    write(place / "base", "qwen3" if tied else "llama", tied)
    expected = adapt(place / "base", place / "adapter", **said)
    model = hf.load_model(place / "adapter", torch.device("cpu"))
    torch.testing.assert_close(model.logits(model(TOKENS)), expected, rtol=1e-5, atol=1e-5)


def test_training_starts_from_it_and_knows_each_part_of_it(config: RunConfig, tmp_path: Path) -> None:
    write(tmp_path / "base", "llama", tied=False)
    adapt(tmp_path / "base", tmp_path / "adapter")
    path = tmp_path / "adapter/adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": "../base"}))
    known = {find(config, tmp_path / name, ours("llama", False)).sha256 for name in ("base", "adapter")}
    path.write_text(json.dumps({**json.loads(path.read_text()), "lora_alpha": 9}))
    known.add(find(config, tmp_path / "adapter", ours("llama", False)).sha256)
    assert len(known) == 3


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"use_dora": True}, "use_dora True is not supported"),
        ({"bias": "all"}, "bias: must be 'none', not 'all'"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save \['lm_head'\] is not supported"),
        ({"alpha_pattern": {"q_proj": 3}}, "alpha_pattern .* is not supported"),
        ({"target_modules": ["q_proj", "lm_head"]}, "changes lm_head by matrices"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "embed_tokens.base_layer.weight is not supported"),
    ],
)
def test_what_our_matrices_do_not_compute_is_refused_by_name(
    tmp_path: Path, said: dict[str, Any], says: str
) -> None:
    write(tmp_path / "base", "llama", tied=False)
    adapt(tmp_path / "base", tmp_path / "adapter", **said)
    with pytest.raises(TrainerError, match=says) as refused:
        hf.load_model(tmp_path / "adapter", torch.device("cpu"))
    assert "merge_and_unload" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"peft_type": "IA3"}, "peft_type: must be 'LORA', not 'IA3'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: must be .*, not 'pissa'"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path: must be text, not null"),
        ({"base_model_name_or_path": "gone"}, "'gone' is not a directory, and cannot be downloaded"),
        ({"lora_alpha": "x"}, "lora_alpha: must be a number"),
    ],
)
def test_settings_that_are_wrong_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], says: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    write(tmp_path / "base", "llama", tied=False)
    adapt(tmp_path / "base", tmp_path / "adapter")
    path = tmp_path / "adapter/adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(TrainerError, match=says):
        hf.load_model(tmp_path / "adapter", torch.device("cpu"))


def test_an_adapter_with_the_config_of_its_base_beside_it_is_an_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "base", "llama", tied=False)
    expected = adapt(tmp_path / "base", tmp_path / "adapter")
    shutil.copy(tmp_path / "base/config.json", tmp_path / "adapter")
    model = hf.load_model(tmp_path / "adapter", torch.device("cpu"))
    torch.testing.assert_close(model.logits(model(TOKENS)), expected, rtol=1e-5, atol=1e-5)
    path = tmp_path / "adapter/adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": "."}))
    monkeypatch.chdir(path.parent)
    with pytest.raises(TrainerError, match=r"the base \. holds no config.json with weights"):
        hf.load_model(path.parent, torch.device("cpu"))


def test_matrices_that_do_not_fit_the_base_are_named_with_their_file(tmp_path: Path) -> None:
    write(tmp_path / "base", "llama", tied=False)
    adapt(tmp_path / "base", tmp_path / "adapter")
    path = tmp_path / "adapter/adapter_model.safetensors"
    whole = load_file(path)
    (first, *_) = sorted(name for name in whole if "lora_A" in name)
    save_file(whole | {first: whole[first][:, :-1].contiguous()}, path)
    with pytest.raises(TrainerError, match=r"adapter_model.safetensors: does not fit model\.layers\.0\."):
        hf.load_model(tmp_path / "adapter", torch.device("cpu"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TrainerError, match=r"adapter_model.safetensors: cannot be read"):
        hf.load_model(tmp_path / "adapter", torch.device("cpu"))
