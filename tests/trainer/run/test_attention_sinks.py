"""Runs of a model with attention sinks: they are learned, saved, resumed and tuned like any other weight."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.runs import outcome
from tests.trainer.trained import trained
from trainer.checkpoint import publish
from trainer.config import SamplesConfig
from trainer.run.evaluation.generate import complete_with_model_of
from trainer.run.loop import DONE, run


def sinks_of(run_dir: Path) -> torch.Tensor:
    """[layers, heads]"""
    weights = load_file(publish.existing(run_dir / "checkpoints")[-1] / "hf/model.safetensors")
    return torch.stack([tensor for name, tensor in sorted(weights.items()) if "sinks" in name])


def test_sinks_are_learned_who_reads_them_is_said_and_a_resumed_run_ends_in_the_same_bytes(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings["training"]["model"] |= {"attention_sinks": True}
    settings["training"] |= {"averaging": {"half_life_tokens": 512}, "attention": "sdpa"}
    whole = tmp_path / "whole"
    trained(settings, whole)
    assert "only `python -m trainer` will read the exported model" in caplog.text
    assert sinks_of(whole).shape == (2, 4)
    assert (sinks_of(whole) != 0).all()

    config = trained(settings)
    newest = publish.existing(config.run_dir / "checkpoints")[-1]
    (newest / "optimizer.safetensors").write_bytes(b"damaged")
    assert run(config) == DONE
    assert outcome(config.run_dir) == outcome(whole)

    samples = SamplesConfig(prompts=["the model"], max_new_tokens=100, temperature=0)
    (written,) = complete_with_model_of(newest / "hf", samples, seed=0)
    assert written["text"].startswith("the model")


@pytest.mark.parametrize("lora", [None, {"rank": 2, "alpha": 4}])
def test_a_model_with_sinks_is_tuned_and_an_adapter_leaves_them_as_they_are(
    sft: dict[str, Any], tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    sft["training"]["model"] |= {"attention_sinks": True}
    trained(sft, tmp_path / "base", objective="pretrain")
    base = publish.existing(tmp_path / "base" / "checkpoints")[-1] / "hf"
    del sft["training"]["init"]
    sft["training"] |= {"pretrained": {"path": str(base)}, "lora": lora, "max_tokens": 4 * 1024}
    config = trained(sft)
    assert torch.equal(sinks_of(config.run_dir), sinks_of(tmp_path / "base")) == (lora is not None)
