"""Means of checkpoints: each is a training run of its own with one checkpoint, and a version of
pretrained_model, which knows what it was made of.
"""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import Recipe
from pipeline.steps.lineage.checkpoints import run_config
from pipeline.steps.training import plan
from pipeline.steps.training.launcher import run_trainer
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import RUNS
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from pipeline.store.training_runs import CheckpointGoneError, checkpoint_name, run_named
from pipeline.store.work import Work
from trainer.config import run_config_of
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import NAME_LENGTH, RunHistory, checkpoint_sha256
from trainer.system.wording import counted

VERSION = "merge-1"

log = logging.getLogger(__name__)


def of_recipe(store: Store, recipe: Recipe, run: plan.PlannedRun, trained: Version) -> Version:
    """The mean that the recipe asks for of a training. Raises PipelineError if checkpoints are gone."""
    steps = run.config.training.averaged_steps
    saved = list(map(RunDirectory(run.config.run_dir).checkpoint, steps))
    gone = [path for path in saved if not store.files.is_saved(path)]
    if gone:
        left = next(number for number, path in enumerate(reversed(saved)) if path in gone)
        raise PipelineError(
            f"training.averaging.checkpoints {len(steps)}: {checkpoint_name(gone[-1])} is not on disk. Leave "
            f"averaging.checkpoints out, or lower it, of the newest there are {left}; or remove "
            f"{run.config.run_dir} to train again"
        )
    work = plan.PretrainedModel(recipe).work(store)
    name = f"{recipe.name} mean {work.fingerprint[:NAME_LENGTH]}"
    return merged(store, work, saved, weights=None, name=name, seconds=trained.seconds)


def run_of(store: Store, version: Version) -> plan.PlannedRun:
    """The run that holds a mean."""
    config = run_config(plan.result(store, version)["run_dir"])
    manifest = version.manifest
    work = Work(version.key, manifest["code_version"], manifest["params"], manifest["inputs"])
    return plan.PlannedRun(work, config)


def reported(store: Store, version: Version) -> dict[str, Any]:
    """What a trainer would have reported of the mean."""
    result = plan.result(store, version)
    return {**result, "path": str(result["checkpoint"])}


def of_checkpoints(store: Store, saved: Sequence[Path], weights: Sequence[float] | None) -> Version:
    """The mean of checkpoints. Each counts alike, or by its entry in `weights`. Raises PipelineError."""
    names = [checkpoint_name(path) for path in saved]
    if len({*names}) < len(names):
        raise PipelineError(f"{', '.join(names)}: a checkpoint is named twice; --weights makes it count more")
    inputs = {name: checkpoint_sha256(path) for name, path in zip(names, saved, strict=True)}
    work = Work(keys.PRETRAINED_MODEL, VERSION, {"weights": weights}, inputs)
    titles = {run_config_of(path).project or "" for path in saved}
    name = f"{' and '.join(sorted(titles))} mean {work.fingerprint[:NAME_LENGTH]}".strip()
    return merged(store, work, saved, weights=weights, name=name)


def last(store: Store, run: str, number: int) -> list[Path]:
    """The newest checkpoints of a run, the oldest first. Raises CheckpointGoneError, UnknownRunError."""
    history = RunHistory(run_named(store, run).path)
    saved = list(history.checkpoints().values())
    if number < 2 or len(saved) < number:
        steps = ", ".join(map(str, history.checkpoints())) or "none"
        raise CheckpointGoneError(
            f"--last {number}: run {history.name} has {counted(len(saved), 'checkpoints')} on disk "
            f"(steps {steps}), and a mean needs at least 2"
        )
    return saved[-number:]


def merged(
    store: Store,
    work: Work,
    saved: Sequence[Path],
    *,
    weights: Sequence[float] | None,
    name: str,
    seconds: float = 0.0,
) -> Version:
    """The mean of the checkpoints in `saved`, in a run called `name`. `seconds`: what training them took."""
    run_dir = store.root / RUNS / work.name
    with store.making(work) as draft:
        checkpoint = plan.result(store, draft)["checkpoint"] if isinstance(draft, Version) else None
        if checkpoint and store.files.is_saved(checkpoint):
            assert isinstance(draft, Version)
            return draft
        found = _made(store, saved, weights, run_dir, name)
        if isinstance(draft, Version):  # its run was removed by hand
            return draft
        return plan.published(store, draft, found, run_dir, seconds)


def _made(
    store: Store, saved: Sequence[Path], weights: Sequence[float] | None, run_dir: Path, name: str
) -> Mapping[str, Any]:
    """Writes the run, and returns what a trainer reports of its last checkpoint."""
    shutil.rmtree(run_dir, ignore_errors=True)  # left by a killed process
    paths = [str(store.files.fetch_folder(path)) for path in saved]
    for path in {path.parent: path for path in saved}.values():  # one of each run
        plan.fetch_held_out(store, run_config_of(path).data)
    shares = [] if weights is None else [f"--weights={','.join(map(str, weights))}"]
    printed = run_trainer("merge", *paths, *shares, f"--output={run_dir}", f"--name={name}")
    with store.files.uploading(run_dir, []):
        log.info("merged %s", ", ".join(map(checkpoint_name, saved)))
    return json.loads(printed)
