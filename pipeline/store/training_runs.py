"""Checkpoints by the name that they have in the UI: `<training run>-<step>`."""

from pathlib import Path

from pipeline.store.errors import PipelineError
from pipeline.store.versions import Store

RUNS = "runs"  # where training runs live in the store
NAME_LENGTH = 8  # hex digits of a training run's fingerprint in the name


class CheckpointGoneError(PipelineError):
    """No such checkpoint is on disk."""


def saved_steps(store: Store) -> list[str]:
    """The names of the whole checkpoints on disk, run by run."""
    found = sorted((store.root / RUNS).glob("*/checkpoints/step-*/manifest.json"))
    return [
        f"{path.parents[2].name[:NAME_LENGTH]}-{path.parent.name.removeprefix('step-')}" for path in found
    ]


def checkpoint_path(store: Store, name: str) -> Path:
    """Where a checkpoint is. Raises CheckpointGoneError when it was deleted, as all but the newest
    `keep_last` are, or never was.
    """
    run, _, step = name.rpartition("-")
    found = (
        sorted((store.root / RUNS).glob(f"{run}*/checkpoints/step-{step}/manifest.json"))
        if run.isalnum() and step.isdigit()
        else []
    )
    if not found:
        kept = ", ".join(saved_steps(store)[-5:]) or "none"
        raise CheckpointGoneError(
            f"checkpoint {name!r} is not on disk: `checkpoint.keep_last` says how many stay. There are {kept}"
        )
    return found[0].parent
