"""The pretrained weights that training starts from: their path on this machine, and their identity."""

from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.store.errors import PipelineError
from pipeline.store.file_hashes import FileHashes
from pipeline.store.fingerprint import combined
from pipeline.store.versions import Store
from trainer.config import TrainingConfig


class WeightsError(PipelineError):
    """The weights that a recipe names are missing or cannot be read."""


def located(recipe: Recipe) -> TrainingConfig:
    """The recipe's training with the resolved path of its weights."""
    training = recipe.training
    if training.pretrained is None or training.pretrained.path is None:
        return training
    pretrained = training.pretrained.model_copy(update={"path": recipe.path(training.pretrained.path)})
    return training.model_copy(update={"pretrained": pretrained})


def identity(store: Store, training: TrainingConfig) -> dict[str, Any] | None:
    """The identity of the weights, independent of their path: the hash of their content, or repository and
    revision. Raises WeightsError.
    """
    source = training.pretrained
    if source is None:
        return None
    if source.path is None:
        return {"repo": source.repo, "revision": source.revision}
    return {"sha256": _content(FileHashes(store.root), source.path)}


def _content(hashes: FileHashes, directory: Path) -> str:
    weights = sorted(directory.glob("*.safetensors"))
    if not weights:
        raise WeightsError(
            f"training.pretrained.path: {directory} does not hold *.safetensors files: name another "
            "directory; relative paths start at the recipe"
        )
    try:
        files = (directory / "config.json", *weights)
        return combined(f"{path.name} {hashes.sha256(path)}" for path in files)
    except OSError as error:
        raise WeightsError(
            f"training.pretrained.path: {error.filename} cannot be read: {error.strerror}"
        ) from error
