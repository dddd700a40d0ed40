"""Finds training runs and checkpoints of a store by their names in the UI: `<training run>-<step>`."""

from pathlib import Path

from pipeline.store.errors import PipelineError
from pipeline.store.keys import RUNS
from pipeline.store.versions import Versions
from trainer.config.model_files import CONFIG
from trainer.system import run_history
from trainer.system.errors import TrainerError
from trainer.system.run_history import NAME_LENGTH, RunHistory

RECORDS = "deleted_runs"  # the configurations of those that were removed


class CheckpointGoneError(PipelineError):
    """The checkpoint is not on disk."""


class UnknownRunError(PipelineError):
    """No training run has the name, or several have."""


def run_histories(store: Versions) -> list[RunHistory]:
    """The training runs of a store, by their names."""
    store.files.pull_runs()
    return run_history.histories(store.root / RUNS)


def run_named(store: Versions, text: str) -> RunHistory:
    """A run by its path or name in the UI; of a checkpoint, the run up to its step. Raises UnknownRunError,
    and CheckpointGoneError for a run that was removed.
    """
    try:
        if not run_history.is_name(text):
            path = Path(text)
            return run_history.at(path) or RunHistory(path)
        store.files.pull_runs()
        return run_history.find(store.root / RUNS, text)
    except TrainerError as error:
        if deleted_run(store, text.partition("-")[0]):
            raise CheckpointGoneError(
                f"{text} is not on disk: its training run was removed by `gc` or by `retention`. "
                "`python -m pipeline lineage RUN-STEP` says what a checkpoint was made from"
            ) from None
        raise UnknownRunError(str(error).replace(str(store.root), store.files.place)) from None


def run_beginning(store: Versions, digits: str) -> RunHistory | None:
    """The training run whose fingerprint begins so. Raises UnknownRunError when several do."""
    store.files.pull_runs()
    try:
        return run_history.the_one(store.root / RUNS, digits) if digits else None
    except TrainerError as error:
        raise UnknownRunError(str(error)) from None


def saved_steps(store: Versions) -> list[str]:
    """The names of the complete checkpoints on disk, ordered by run and step."""
    return [checkpoint_name(path) for run in run_histories(store) for path in run.checkpoints().values()]


def checkpoint_path(store: Versions, name: str) -> Path:
    """The directory of a checkpoint by its path or its name in the UI, of a run that of its newest. Raises
    CheckpointGoneError when it was deleted, as all but the newest `keep_last` are, or never existed.
    """
    run: RunHistory | None = None
    try:
        run = run_named(store, name)
        return store.files.fetch_folder(run.newest_checkpoint)
    except (TrainerError, UnknownRunError) as error:
        is_run = run is not None and run.directory.config.is_file()
        problem = str(error).removeprefix(f"{name}: ")
        why = "`checkpoint.keep_last` sets how many stay" if is_run else problem
        kept = ", ".join(saved_steps(store)[-5:]) or "none"
        raise CheckpointGoneError(f"checkpoint {name!r} is not on disk: {why}. On disk: {kept}") from None


def model_named(store: Versions, text: str) -> Path:
    """As `checkpoint_path`; a path that leads to no run stays as it is given."""
    run = run_named(store, text)
    if (Path(text) / CONFIG).is_file() or not run.directory.config.is_file():
        return Path(text)
    return checkpoint_path(store, text)


def checkpoint_name(checkpoint: Path) -> str:
    """The name of the checkpoint in a directory."""
    return f"{checkpoint.parents[1].name[:NAME_LENGTH]}-{checkpoint.name.removeprefix('step-')}"


def deleted_run(store: Versions, name: str) -> Path | None:
    """The configuration of a removed training run, by the first digits of its fingerprint."""
    if not name.isalnum():
        return None
    store.files.pull_folder(store.root / RECORDS)
    return next(iter(sorted((store.root / RECORDS).glob(f"{name}*.yaml"))), None)
