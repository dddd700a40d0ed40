"""The weights of a model's directory: one model.safetensors, or several files with an index."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from trainer.model.llama import HEAD, WITH_VOCABULARY, Llama
from trainer.parallel.dtensor import fill
from trainer.system.errors import TrainerError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weights(model: Llama) -> dict[str, torch.Tensor]:
    """The model's tensors, in fp32 on the CPU, without the rows that pad the vocabulary.

    A tied head is left out, because it is the embedding.
    """
    tensors = {}
    for name, parameter in model.named_parameters():
        rows = model.vocab_size if name in WITH_VOCABULARY else parameter.shape[0]
        tensors[name] = parameter.detach()[:rows].float().cpu().contiguous()
    return tensors


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory, sorted by name. Raises TrainerError when there are none."""
    index = directory / INDEX
    if not index.exists():
        if not (directory / SINGLE).exists():
            raise TrainerError(
                f"{directory}: holds neither {SINGLE} nor {INDEX}; convert other formats to safetensors"
            )
        return [directory / SINGLE]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise TrainerError(f"{index}: cannot be read: {error!r}") from error
    for name in names:
        if Path(name).name != name or not (directory / name).exists():
            raise TrainerError(f"{index}: lists {name}, which is not a file in the same directory")
    return [directory / name for name in names]


def load_weights(model: Llama, directory: Path) -> None:
    """Copies a directory's tensors, one at a time, into the parameters that this process holds.

    Padding rows become zero. Rows beyond the model's vocabulary are left out. Raises TrainerError when a
    tensor is missing, unknown or has another shape.
    """
    parameters = dict(model.named_parameters())
    missing = set(model.shapes)
    with torch.no_grad():
        for name, tensor in _tensors(directory):
            if name == HEAD and model.config.tie_embeddings:
                continue
            if name not in missing:
                raise TrainerError(f"{directory}: tensor {name} is unknown to the model, or stored twice")
            missing.remove(name)
            shape = model.shapes[name]
            rows = model.vocab_size if name in WITH_VOCABULARY else shape[0]
            used = tensor[: model.vocab_size] if name in WITH_VOCABULARY else tensor
            if used.shape != (needed := (rows, *shape[1:])):
                raise TrainerError(
                    f"{directory}: {name} has shape {tuple(tensor.shape)}, but the model needs {needed}"
                )
            if name in parameters:
                fill(parameters[name], used)
    if missing:
        raise TrainerError(f"{directory}: tensors of the model are missing: {', '.join(sorted(missing))}")


def _tensors(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for path in weight_files(directory):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    # Early Llamas stored tables of angles, which follow from the configuration.
                    if not name.endswith("rotary_emb.inv_freq"):
                        yield name, file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise TrainerError(f"{path}: cannot be read: {error}") from error
