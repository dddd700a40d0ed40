"""The mean of several models of one shape: a directory like theirs, with fp32 weights."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from trainer.config.hugging_face import read_config, weight_files
from trainer.config.model_files import CONFIG, GENERATION_CONFIG, SINGLE, TOKENIZER
from trainer.config.tensors import HEAD
from trainer.hf.directory import TOKENIZER_FILES
from trainer.system.errors import TrainerError
from trainer.system.tensor_files import WEIGHTS_OF_PYTORCH, save_tensors

# What a directory says of its files and not of the model. How answers end is no matter of the shape.
NOT_OF_THE_MODEL = {"dtype", "torch_dtype", "transformers_version", "eos_token_id"}


def write_mean(
    models: Sequence[Path], weights: Sequence[float] | None, *, like: Path, destination: Path
) -> None:
    """Writes the mean of the weights of `models`, computed in fp32 whatever they are stored in. Each model
    counts alike, or as its share of the sum of `weights`. All other files are those of `like`, one of them.

    Holds one tensor of each model in memory. Raises TrainerError for models of another shape, vocabulary or
    tokenizer than `like`, and for files that cannot be read.
    """
    for model in models:
        _compare(like, model)
    destination.mkdir(parents=True)
    with ExitStack() as stack:
        opened = [_tensors(model, stack) for model in models]
        for model, tensors in zip(models[1:], opened[1:], strict=True):
            if _shapes(tensors) != _shapes(opened[0]):
                raise TrainerError(f"{model}: has other tensors than {models[0]}: merge models of one shape")
        means = {
            name: mean([tensors[name].get_tensor(name) for tensors in opened], weights)
            for name in sorted(opened[0])
        }
    save_tensors(means, destination / SINGLE, WEIGHTS_OF_PYTORCH)
    for name in (CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES):
        if (like / name).exists():
            shutil.copyfile(like / name, destination / name)


def mean(tensors: Sequence[torch.Tensor], weights: Sequence[float] | None = None) -> torch.Tensor:
    """The mean of tensors of one shape, fp32."""
    stacked = torch.stack([tensor.float() for tensor in tensors])
    if weights is None:
        return stacked.mean(0)
    shares = torch.tensor(weights) / sum(weights)
    return (stacked * shares.view(-1, *[1] * (stacked.dim() - 1))).sum(0)


def _shapes(tensors: dict[str, Any]) -> dict[str, list[int]]:
    """The shape of each stored tensor by name."""
    return {name: file.get_slice(name).get_shape() for name, file in tensors.items()}


def _tensors(model: Path, stack: ExitStack) -> dict[str, Any]:
    """The opened file of each tensor by the tensor's name, without a head that is the embedding."""
    found: dict[str, Any] = {}
    for path in weight_files(model):
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise TrainerError(f"{path}: cannot be read: {error}") from error
        found |= dict.fromkeys(file.keys(), file)
    if read_config(model).get("tie_word_embeddings"):
        found.pop(HEAD, None)
    return found


def _compare(first: Path, other: Path) -> None:
    """Raises TrainerError unless both have the same shape and tokenizer."""
    ours, theirs = read_config(first), read_config(other)
    for name in sorted((ours.keys() | theirs.keys()) - NOT_OF_THE_MODEL):
        if ours.get(name) != theirs.get(name):
            raise TrainerError(
                f"{other} has {name} {theirs.get(name)}, and {first} has {ours.get(name)}: only models of "
                "one shape can be merged"
            )
    tokenizers = [model / TOKENIZER for model in (first, other)]
    if len({path.read_bytes() if path.exists() else b"" for path in tokenizers}) > 1:
        raise TrainerError(
            f"{other} has another tokenizer than {first}: only models that read the same tokens can be merged"
        )
