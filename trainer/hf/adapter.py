"""The adapter of a model in peft's format: adapter_model.safetensors and adapter_config.json."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from trainer.config import LoraConfig, PretrainedConfig
from trainer.config.hugging_face import ADAPTER
from trainer.model.lora import adapters

WEIGHTS = "adapter_model.safetensors"
PARTS = {"down": "lora_A.weight", "up": "lora_B.weight", "rows": "token_adapter.trainable_tokens_delta"}


def save_adapter(
    tensors: dict[str, torch.Tensor],
    config: LoraConfig,
    base: PretrainedConfig,
    directory: Path,
    tokens: Sequence[int] = (),
) -> None:
    """Writes `tensors`, named as by `adapters`, of an adapter to the `base`, with rows of `tokens`."""
    directory.mkdir(parents=True)
    layers: dict[str, set[str]] = {part: set() for part in PARTS}
    for name in tensors:
        *_, layer, part = name.split(".")
        layers[part].add(layer)
    save_file(
        {_named(name): tensor for name, tensor in tensors.items()},
        directory / WEIGHTS,
        metadata={"format": "pt"},
    )
    settings: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base.path or base.repo),
        "revision": base.revision,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(layers["down"]),
        "inference_mode": True,
    }
    if layers["rows"]:
        settings["trainable_token_indices"] = {layer: [*tokens] for layer in sorted(layers["rows"])}
    (directory / ADAPTER).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


@torch.no_grad()
def load_adapter(model: nn.Module, directory: Path) -> None:
    """Copies a saved adapter into that of the model."""
    tensors = load_file(directory / WEIGHTS)
    for name, parameter in adapters(model).items():
        parameter.copy_(tensors[_named(name)])


def _named(name: str) -> str:
    layer, _, part = name.rpartition(".")
    return f"base_model.model.{layer}.{PARTS[part]}"
