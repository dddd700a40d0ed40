"""Finds checkpoints by their name in the UI: `<training run>-<step>`."""

from pathlib import Path

from pipeline.store.bucket_runs import RUNS, bring_checkpoint, bring_names
from pipeline.store.errors import PipelineError
from pipeline.store.mirror import of
from pipeline.store.versions import Store

RECORDS = "deleted_runs"  # the configurations of those that were removed
NAME_LENGTH = 8  # hex digits of a training run's fingerprint in the name


class CheckpointGoneError(PipelineError):
    """The checkpoint is not on disk."""


def saved_steps(store: Store) -> list[str]:
    """The names of the complete checkpoints on disk, ordered by run and step."""
    complete = [
        (path.parents[1].name, path.name.removeprefix("step-")) for path in _complete(store, "*", "*")
    ]
    return [f"{run[:NAME_LENGTH]}-{step}" for run, step in complete]


def checkpoint_path(store: Store, name: str) -> Path:
    """The directory of a checkpoint. Raises CheckpointGoneError when it was deleted, as all but the newest
    `keep_last` are, or never existed.
    """
    run, _, step = name.rpartition("-")
    paths = _complete(store, f"{run}*", step) if run.isalnum() and step.isdigit() else []
    if not paths:
        if deleted_run(store, run):
            raise CheckpointGoneError(
                f"checkpoint {name!r} is not on disk: its training run was removed by `gc --runs` or by "
                f"`retention`. `python -m pipeline lineage {name}` says what it was made from"
            )
        kept = ", ".join(saved_steps(store)[-5:]) or "none"
        raise CheckpointGoneError(
            f"checkpoint {name!r} is not on disk: `checkpoint.keep_last` sets how many stay. On disk: {kept}"
        )
    return bring_checkpoint(paths[0])


def checkpoint_name(checkpoint: Path) -> str:
    """The name of the checkpoint in a directory."""
    return f"{checkpoint.parents[1].name[:NAME_LENGTH]}-{checkpoint.name.removeprefix('step-')}"


def deleted_run(store: Store, name: str) -> Path | None:
    """The configuration of a removed training run, by the first digits of its fingerprint."""
    if not name.isalnum():
        return None
    if mirror := of(store.root):
        mirror.sync(store.root / RECORDS)
    return next(iter(sorted((store.root / RECORDS).glob(f"{name}*.yaml"))), None)


def _complete(store: Store, run: str, step: str) -> list[Path]:
    bring_names(store.root)
    manifests = (store.root / RUNS).glob(f"{run}/checkpoints/step-{step}/manifest.json")
    return sorted(manifest.parent for manifest in manifests)
