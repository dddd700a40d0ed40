"""Finds training runs and checkpoints of a store by their names in the UI: `<training run>-<step>`."""

from pathlib import Path

from pipeline.store.errors import PipelineError
from pipeline.store.keys import RUNS
from pipeline.store.store import Store
from trainer.system import history
from trainer.system.errors import TrainerError
from trainer.system.history import NAME_LENGTH, RunHistory

RECORDS = "deleted_runs"  # the configurations of those that were removed


class CheckpointGoneError(PipelineError):
    """The checkpoint is not on disk."""


class UnknownRunError(PipelineError):
    """No training run has the name, or several have."""


def run_histories(store: Store) -> list[RunHistory]:
    """The training runs of a store, by their names."""
    store.files.pull_runs()
    return history.histories(store.root / RUNS)


def run_named(store: Store, text: str) -> RunHistory:
    """A training run by a path, or by its name in the UI; of a checkpoint, the run up to its step. Raises
    UnknownRunError.
    """
    try:
        path = history.path_of(text)
        if path.exists() or not history.NAME.fullmatch(text):
            return history.at(path) or RunHistory(path)
        store.files.pull_runs()
        return history.find(store.root / RUNS, text)
    except TrainerError as error:
        raise UnknownRunError(str(error)) from None


def run_beginning(store: Store, digits: str) -> RunHistory | None:
    """The training run whose fingerprint begins so. Raises UnknownRunError when several do."""
    store.files.pull_runs()
    try:
        return history.the_one(store.root / RUNS, digits) if digits else None
    except TrainerError as error:
        raise UnknownRunError(str(error)) from None


def saved_steps(store: Store) -> list[str]:
    """The names of the complete checkpoints on disk, ordered by run and step."""
    return [checkpoint_name(path) for run in run_histories(store) for path in run.checkpoints().values()]


def checkpoint_path(store: Store, name: str) -> Path:
    """The directory of a checkpoint. Raises CheckpointGoneError when it was deleted, as all but the newest
    `keep_last` are, or never existed, and UnknownRunError when several runs may be meant.
    """
    digits, _, step = name.rpartition("-")
    run = run_beginning(store, digits) if step.isdigit() else None
    path = run.checkpoints().get(int(step)) if run else None
    if path is None:
        if deleted_run(store, digits):
            raise CheckpointGoneError(
                f"checkpoint {name!r} is not on disk: its training run was removed by `gc` or by "
                f"`retention`. `python -m pipeline lineage {name}` says what it was made from"
            )
        kept = ", ".join(saved_steps(store)[-5:]) or "none"
        raise CheckpointGoneError(
            f"checkpoint {name!r} is not on disk: `checkpoint.keep_last` sets how many stay. On disk: {kept}"
        )
    return store.files.fetch_folder(path)


def model_named(store: Store, text: str) -> Path:
    """A path as it is given; by a name in the UI, the directory of a checkpoint, of a run that of its newest.
    Raises UnknownRunError and CheckpointGoneError.
    """
    if Path(text).exists() or not history.NAME.fullmatch(text):
        return Path(text)
    run = run_named(store, text)
    step = run.until_step or max(run.checkpoints(), default=0)
    return checkpoint_path(store, f"{run.path.name}-{step:08d}")


def checkpoint_name(checkpoint: Path) -> str:
    """The name of the checkpoint in a directory."""
    return f"{checkpoint.parents[1].name[:NAME_LENGTH]}-{checkpoint.name.removeprefix('step-')}"


def deleted_run(store: Store, name: str) -> Path | None:
    """The configuration of a removed training run, by the first digits of its fingerprint."""
    if not name.isalnum():
        return None
    store.files.pull_folder(store.root / RECORDS)
    return next(iter(sorted((store.root / RECORDS).glob(f"{name}*.yaml"))), None)
