"""Finds the model that a person names: by a path, or by a name of a run or checkpoint in the UI."""

from pathlib import Path

from trainer.system import history
from trainer.system.errors import TrainerError
from trainer.system.history import MODEL_NAMES, RunHistory


def model_named(text: str) -> Path:
    """The directory with `config.json` and weights: of a run, that of its newest checkpoint. Raises
    TrainerError when there is none, or more than one.
    """
    path = history.path_of(text)
    if not path.exists() and history.NAME.fullmatch(text):
        store = history.store_place()
        if "://" in store:
            raise TrainerError(
                f"{text}: {history.STORE_VARIABLE} is {store}, and the trainer reads directories only: give "
                "the `path` that `python -m pipeline lineage CHECKPOINT` prints"
            )
        path = history.find(Path(store).absolute() / "runs", text).newest_checkpoint
    if not path.exists():
        raise TrainerError(f"{text}: does not exist. Give {MODEL_NAMES}")
    newest = list(RunHistory(path).checkpoints().values())[-1:]
    for place in (path, path / "hf", *(checkpoint / "hf" for checkpoint in newest)):
        if (place / "config.json").is_file():
            return place
    raise TrainerError(f"{text}: no model is there. Give {MODEL_NAMES}")


def checkpoint_named(text: str) -> Path:
    """As `model_named`, the directory of a checkpoint in a run. Raises TrainerError."""
    checkpoint = model_named(text).parent
    if not history.STEP.fullmatch(checkpoint.name):
        raise TrainerError(
            f"{text}: an exported model, without its held-out text. Give its run, or one of its checkpoints"
        )
    return checkpoint
