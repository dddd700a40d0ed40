"""The files of a model's directory in Hugging Face's format."""

from pathlib import Path
from typing import Any

from trainer.system.durable import read_json
from trainer.system.errors import TrainerError

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object. Raises FileNotFoundError, and TrainerError for a file that holds none."""
    try:
        settings = read_json(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path}: cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise TrainerError(f"{path}: is not a JSON object")
    return settings


def files_of_index(index: Path) -> list[str]:
    """The names of the files that hold the weights, sorted. Raises TrainerError."""
    try:
        return sorted({str(name) for name in read_json(index)["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrainerError(f"{index}: cannot be read: {error!r}") from error
