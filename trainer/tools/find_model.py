"""Finds the model that a person names: by a path, or by a name of a run or checkpoint in the UI."""

from collections.abc import Sequence
from pathlib import Path

from trainer.config.hugging_face import is_model
from trainer.system import paths, run_history
from trainer.system.errors import TrainerError
from trainer.system.run_history import MODEL_NAMES, RunHistory


def model_named(text: str) -> Path:
    """The directory with `config.json` and weights: of a run, that of its newest checkpoint. Raises
    TrainerError when there is none, or more than one.
    """
    path = run_history.path_of(text)
    if run_history.is_name(text):
        store = paths.store_place()
        if "://" in store:
            raise TrainerError(
                f"{text}: {paths.STORE_VARIABLE} is {store}, and the trainer reads directories only: give "
                "the `path` that `python -m pipeline lineage CHECKPOINT` prints"
            )
        path = run_history.find(Path(store) / "runs", text).newest_checkpoint
    if not path.exists():
        raise TrainerError(f"{text}: does not exist. Give {MODEL_NAMES}")
    newest = list(RunHistory(path).checkpoints().values())[-1:]
    for place in (path, path / "hf", *(checkpoint / "hf" for checkpoint in newest)):
        if is_model(place):
            return place
    raise TrainerError(f"{text}: no model is there. Give {MODEL_NAMES}")


def last_checkpoints(names: Sequence[str], number: int) -> list[Path]:
    """The newest checkpoints on disk of the one run that is named, the oldest first. Raises TrainerError."""
    if len(names) != 1 or number < 2:
        raise TrainerError(f"--last {number} of {', '.join(names)}: name one run, and at least 2 checkpoints")
    run = RunHistory(checkpoint_named(names[0]).resolve().parents[1])
    saved = list(run.checkpoints().items())
    if len(saved) < number:
        steps = ", ".join(str(step) for step, _ in saved)
        raise TrainerError(
            f"{run.name}: --last {number} checkpoints, but only {len(saved)} are on disk (steps {steps}): "
            "lower it; training.checkpoint.keep_last and training.averaging.checkpoints say how many stay"
        )
    return [checkpoint for _, checkpoint in saved[-number:]]


def checkpoint_named(text: str) -> Path:
    """As `model_named`, the directory of a checkpoint in a run. Raises TrainerError."""
    checkpoint = model_named(text).parent
    if not run_history.STEP.fullmatch(checkpoint.name):
        raise TrainerError(
            f"{text}: an exported model, without its held-out text. Give its run, or one of its checkpoints"
        )
    return checkpoint
