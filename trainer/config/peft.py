"""The directory of an adapter in peft's format, without its tensors: which model it changes, and how."""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from trainer.config.base import Config
from trainer.config.model import PretrainedConfig
from trainer.config.model_files import (
    CONFIG,
    GENERATION_CONFIG,
    INDEX,
    SINGLE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    files_of_index,
    read_settings,
)
from trainer.config.run import format_validation_error
from trainer.system.errors import TrainerError
from trainer.system.hub import downloading

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
INSTEAD = "name what peft's merge_and_unload makes of it"
# What only training needs, and what the tensors say, too.
_NOT_NEEDED = {
    *("auto_mapping", "ensure_weight_tying", "eva_config", "exclude_modules", "inference_mode"),
    *("layers_pattern", "layers_to_transform", "lora_dropout", "megatron_core", "peft_version"),
    *("qalora_group_size", "r", "rank_pattern", "target_modules", "task_type"),
}


class _Settings(Config):
    """The settings of peft's LoraConfig that decide what is computed."""

    peft_type: Literal["LORA"]
    base_model_name_or_path: str
    revision: str | None = None
    lora_alpha: float
    use_rslora: bool = False
    bias: Literal["none"] = "none"
    # The other ways to begin change the weights of the base.
    init_lora_weights: Literal[True, False, "gaussian", "orthogonal", "eva"] | None = True
    trainable_token_indices: list[int] | dict[str, list[int]] | None = None


@dataclass(frozen=True)
class Adapter:
    """The adapter in `directory` to the model in `base`."""

    directory: Path
    base: Path
    settings: _Settings

    @property
    def files(self) -> list[Path]:
        return [self.directory / ADAPTER, self.directory / ADAPTER_WEIGHTS]

    def scale(self, rank: int) -> float:
        """What the product of two matrices of this rank is multiplied by."""
        return self.settings.lora_alpha / (math.sqrt(rank) if self.settings.use_rslora else rank)

    def tokens(self, layer: str) -> list[int]:
        """The tokens whose rows of a layer the adapter replaces, in the order of these rows."""
        named = self.settings.trainable_token_indices or []
        if isinstance(named, list):
            return named
        return next((of for name, of in named.items() if f".{layer}".endswith(f".{name}")), [])


def adapter_of(directory: Path) -> Adapter | None:
    """The adapter that a directory holds in place of weights; the config.json of the base may be beside it.
    Raises TrainerError for one that computes what low-rank matrices beside linear layers do not.
    """
    path = directory / ADAPTER
    if not path.is_file() or holds_weights(directory):
        return None
    values = read_settings(path)
    for key, value in values.items():
        if value and key not in _NOT_NEEDED and key not in _Settings.model_fields:
            raise TrainerError(f"{path}: {key} {value!r} is not supported: {INSTEAD}")
    known = {key: value for key, value in values.items() if key in _Settings.model_fields}
    try:
        settings = _Settings.model_validate(known)
    except ValidationError as error:
        raise TrainerError(f"{path}: {format_validation_error(error)}: {INSTEAD}") from error
    return Adapter(directory, _base(directory, settings), settings)


def check_adaptable(directory: Path) -> None:
    """Raises TrainerError if the weights to train an adapter for are an adapter themselves: what names an
    adapter as its base is opened neither by peft nor here.
    """
    if adapter := adapter_of(directory):
        raise TrainerError(
            f"training.lora: {directory} is an adapter to {adapter.base}, and nothing opens an adapter to an "
            f"adapter: {INSTEAD}, or leave out training.lora"
        )


def _base(directory: Path, settings: _Settings) -> Path:
    """The directory of the model that an adapter changes, from the hub if it is not on this machine."""
    named = settings.base_model_name_or_path
    source = base_named(directory, named, settings.revision)
    with downloading(f"{directory / ADAPTER}: base_model_name_or_path {named!r} is not a directory, and"):
        base = source.path or downloaded(named, source.revision)
    if not ((base / CONFIG).is_file() and holds_weights(base)):
        raise TrainerError(
            f"{directory / ADAPTER}: the base {named} holds no {CONFIG} with weights in safetensors: "
            f"{INSTEAD}"
        )
    return base


def base_named(directory: Path, named: str, revision: str | None) -> PretrainedConfig:
    """The model that the adapter in a directory names: a folder of this machine, or else one of the hub."""
    here = (place for place in (Path(named), directory / named) if place.is_dir())
    if path := next(here, None):
        return PretrainedConfig(path=path)
    return PretrainedConfig(repo=named, revision=revision or "main")


def holds_weights(directory: Path) -> bool:
    """Whether a directory holds all weights of a model, and not only an adapter."""
    return any((directory / name).is_file() for name in (SINGLE, INDEX))


@cache  # the files of an adapter's base are asked for one by one
def downloaded(repo: str, revision: str | None) -> Path:
    """The directory of a model or adapter of the hub on this machine. Raises TrainerError
    for a list of files that cannot be read, and the errors of huggingface_hub."""
    from huggingface_hub import snapshot_download

    files = [CONFIG, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, SINGLE, INDEX, ADAPTER, ADAPTER_WEIGHTS]
    directory = Path(snapshot_download(repo, revision=revision, allow_patterns=files))
    if (directory / INDEX).is_file() and not (directory / SINGLE).is_file():
        parts = files_of_index(directory / INDEX)
        snapshot_download(repo, revision=directory.name, allow_patterns=parts)
    return directory
