"""Weights that training goes on from: where they lie on this machine, and what identifies them."""

from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.store.errors import PipelineError
from pipeline.store.file_hashes import FileHashes
from pipeline.store.fingerprint import combined
from pipeline.store.versions import Store
from trainer.config import TrainingConfig


class WeightsError(PipelineError):
    """There are no weights where a recipe says."""


def located(recipe: Recipe) -> TrainingConfig:
    """The recipe's training with the place of its weights on this machine."""
    training = recipe.training
    if training.pretrained is None or training.pretrained.path is None:
        return training
    there = training.pretrained.model_copy(update={"path": recipe.path(training.pretrained.path)})
    return training.model_copy(update={"pretrained": there})


def identity(store: Store, training: TrainingConfig) -> dict[str, Any] | None:
    """What the weights are, wherever they lie: their content, or repository and revision. Raises
    WeightsError.
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
            f"training.pretrained.path: {directory} is no directory that holds *.safetensors; relative paths "
            "start at the recipe"
        )
    try:
        return combined(
            f"{path.name} {hashes.sha256(path)}" for path in (directory / "config.json", *weights)
        )
    except OSError as error:
        raise WeightsError(
            f"training.pretrained.path: {error.filename} cannot be read: {error.strerror}"
        ) from error
