"""The adapter of a model in peft's format: adapter_model.safetensors and adapter_config.json."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from trainer.config import LoraConfig, PretrainedConfig
from trainer.config.peft import ADAPTER, ADAPTER_WEIGHTS, INSTEAD, Adapter
from trainer.config.tensors import WITH_VOCABULARY
from trainer.model.lora import adapters
from trainer.system.errors import TrainerError
from trainer.system.tensor_files import WEIGHTS_OF_PYTORCH, save_tensors

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
    save_tensors(
        {_named(name): tensor for name, tensor in tensors.items()},
        directory / ADAPTER_WEIGHTS,
        WEIGHTS_OF_PYTORCH,
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
    """Copies the adapter in a directory into the model's own."""
    tensors = load_file(directory / ADAPTER_WEIGHTS)
    for name, parameter in adapters(model).items():
        parameter.copy_(tensors[_named(name)])


def merged_tensors(
    adapter: Adapter, base: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model, those that the adapter changes merged with it. Raises TrainerError for tensors
    of the adapter that no part of our own adapters has, or that do not fit the base.
    """
    path = adapter.directory / ADAPTER_WEIGHTS
    try:
        left = load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrainerError(f"{path}: cannot be read: {error}") from error
    for name, tensor in base:
        layer = name.removesuffix(".weight")
        down, up, rows = (left.pop(_named(f"{layer}.{part}"), None) for part in PARTS)
        try:
            if down is not None and up is not None and name not in WITH_VOCABULARY:
                tensor = tensor.float() + adapter.scale(len(down)) * (up.float() @ down.float())
            elif down is not None or up is not None:
                raise TrainerError(f"{path}: changes {layer} by matrices, which is not supported: {INSTEAD}")
            if rows is not None:
                at = torch.tensor(adapter.tokens(layer))
                tensor = tensor.float().index_copy(0, at, rows.float())
        except (RuntimeError, IndexError) as error:
            raise TrainerError(
                f"{path}: does not fit {name} of {adapter.base}, of shape {tuple(tensor.shape)}: {error}"
            ) from error
        yield name, tensor
    if left:
        raise TrainerError(f"{path}: tensor {next(iter(left))} is not supported: {INSTEAD}")


def _named(name: str) -> str:
    layer, _, part = name.rpartition(".")
    return f"base_model.model.{layer}.{PARTS[part]}"
