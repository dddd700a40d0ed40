"""The weights that training starts from: path on this machine, identity, and their model's lineage."""

import json
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.store.errors import PipelineError
from pipeline.store.file_hashes import FileHashes
from pipeline.store.fingerprint import combined
from pipeline.store.store import Store
from trainer.config import TrainingConfig


def located(recipe: Recipe) -> TrainingConfig:
    """The recipe's training with the resolved path of its weights."""
    training = recipe.training
    if training.pretrained is None or training.pretrained.path is None:
        return training
    pretrained = training.pretrained.model_copy(update={"path": recipe.path(training.pretrained.path)})
    return training.model_copy(update={"pretrained": pretrained})


def identity(store: Store, training: TrainingConfig) -> dict[str, Any] | None:
    """The hash of the content of the weights, or repository and revision. Raises PipelineError."""
    source = training.pretrained
    if source is None:
        return None
    if source.path is None:
        return {"repo": source.repo, "revision": source.revision}
    return {"sha256": _content(store.hashes, source.path)}


def origin(store: Store, training: TrainingConfig) -> dict[str, Any]:
    """What a checkpoint's lineage says about the weights: their identity, the sha256 of each file and, where
    `lineage.json` lies beside them, the lineage of the model they belong to. Empty without such weights.

    Raises PipelineError.
    """
    source = training.pretrained
    known = identity(store, training)
    if source is None or known is None:
        return {}
    if source.path is not None:
        known["files"] = {path.name: store.hashes.sha256(path) for path in _weights(source.path)}
        known |= _lineage_beside(source.path)
    return {"pretrained": known}


def _lineage_beside(weights: Path) -> dict[str, Any]:
    """The lineage in an exported model, or in the checkpoint whose directory `hf` holds the weights."""
    place = weights.parent if weights.name == "hf" else weights
    try:
        lineage = json.loads((place / "lineage.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"training.pretrained.path: {place / 'lineage.json'} cannot be read ({error}): copy it again "
            "from the model's own directory, or delete it to train without its lineage"
        ) from error
    complete = isinstance(lineage, dict) and lineage.keys() >= {"recipe", "assets", "training"}
    return {"lineage": lineage} if complete else {}


def check(recipe: Recipe) -> None:
    """Raises PipelineError unless the directory of the weights that the recipe names holds some."""
    source = located(recipe).pretrained
    if source and source.path:
        _weights(source.path)


def _weights(directory: Path) -> list[Path]:
    weights = sorted(directory.glob("*.safetensors"))
    if not weights:
        raise PipelineError(
            f"training.pretrained.path: {directory} does not hold *.safetensors files: name another "
            "directory; relative paths start at the recipe"
        )
    return weights


def _content(hashes: FileHashes, directory: Path) -> str:
    weights = _weights(directory)
    try:
        files = (directory / "config.json", *weights)
        return combined(f"{path.name} {hashes.sha256(path)}" for path in files)
    except OSError as error:
        raise PipelineError(
            f"training.pretrained.path: {error.filename} cannot be read: {error.strerror}"
        ) from error
