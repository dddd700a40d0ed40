"""Retention: which training runs are kept, and removing the others with everything that was made from them.

A training run is its directory in `runs`, its version of pretrained_model, and the evaluations and exports of
that version. Of a removed run the configuration stays, from which `lineage` answers.
"""

import json
import shutil
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.store import keys, last_versions, locks
from pipeline.store.files import Files
from pipeline.store.keys import RUNS
from pipeline.store.store import Store
from pipeline.store.training_runs import RECORDS
from trainer.config import load_run_config
from trainer.system.durable import unpublished, write_atomically
from trainer.system.history import NAME_LENGTH

MADE_FROM_RUN = (keys.PRETRAINED_MODEL, keys.EVALUATION, keys.EXPORTED_MODEL)
# A run that is not exported and was active since then may be waiting for its evaluation, or to be restarted.
IDLE_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class TrainingRun:
    """A training run on disk. `paths`: everything that belongs to it; `base`: the weights that it started
    from, if they are files; `active`: when it last wrote something, in seconds since 1970.
    """

    name: str
    recipe: str
    variant: str
    paths: tuple[Path, ...]
    base: Path | None
    active: float
    exported: bool

    @property
    def state(self) -> str:
        return "exported" if self.exported else "not exported"

    def holds(self, path: Path) -> bool:
        """Whether a path lies in something that belongs to the run."""
        return any(path.is_relative_to(own) for own in self.paths)


def training_runs(store: Store) -> list[TrainingRun]:
    """All training runs, the newest first; also those whose directory was deleted by hand."""
    store.files.pull_runs()
    models = {version.path.name: version for version in store.newest_first(keys.PRETRAINED_MODEL)}
    derived = [
        (version.path, version.manifest["inputs"].get(keys.PRETRAINED_MODEL))
        for key in (keys.EVALUATION, keys.EXPORTED_MODEL)
        for version in sorted(store.newest_first(key), key=lambda version: version.path)
    ]
    directories = {path.parent.name for path in (store.root / RUNS).glob("[!.]*/config.yaml")}
    runs = []
    for name in directories | models.keys():
        directory = store.root / RUNS / name
        made = [path for path, model in derived if name in models and model == models[name].data_version]
        if name in models:
            made.append(store.root / keys.PRETRAINED_MODEL / name)
        for family in (keys.CHECKPOINT_EVALUATION, keys.BENCHMARKS):
            made += (store.root / family).glob(f"{name[:NAME_LENGTH]}-*")
        exports = [path for path in made if path.parent.name == keys.EXPORTED_MODEL]
        runs.append(_described(store, directory, made, exports))
    return sorted(runs, key=lambda run: (-run.active, run.name))


def _described(store: Store, directory: Path, made: list[Path], exports: list[Path]) -> TrainingRun:
    config: dict[str, Any] = {}
    if (directory / "config.yaml").exists():
        config = yaml.load((directory / "config.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    lineage = config.get("lineage") or (_json(exports[0] / "lineage.json") if exports else {})
    base = ((config.get("training") or {}).get("pretrained") or {}).get("path")
    written = [
        directory / "config.yaml",
        directory / "metrics.jsonl",
        *(path / "manifest.json" for path in made),
    ]
    return TrainingRun(
        directory.name,
        lineage.get("recipe", {}).get("name", "unknown"),
        lineage.get("variant", ""),
        (*([directory] if directory.exists() else []), *made),
        Path(base) if base else None,
        max((path.stat().st_mtime for path in written if path.exists()), default=0.0),
        bool(exports),
    )


def removable(
    store: Store, keep: int, recipe: str | None = None, needed: Iterable[Path] = ()
) -> list[TrainingRun]:
    """The training runs beyond the newest `keep` of each recipe and each of its variants, or of one `recipe`
    with its variants, the newest first.

    Never one in use, in progress, or whose weights a run that stays started from, or `needed` names.
    """
    runs = training_runs(store)
    used_last = last_versions.recorded(store.files, changes_kept=0)
    in_use = [store.root / key / name for key, name in used_last if key in MADE_FROM_RUN]
    wanted = [*in_use, *needed]
    by_variant: dict[tuple[str, str], list[TrainingRun]] = {}
    for run in runs:
        by_variant.setdefault((run.recipe, run.variant), []).append(run)
    old = {
        run.name: run
        for (name, _), group in by_variant.items()
        for run in group[max(keep, 1) :]
        if recipe in (None, name) and not _is_in_progress(store, run)
    }
    wanted += [run.base for run in runs if run.base and run.name not in old]
    while wanted:
        path = wanted.pop()
        for run in [run for run in old.values() if run.holds(path)]:
            del old[run.name]
            wanted += [run.base] if run.base else []
    return list(old.values())


def _is_in_progress(store: Store, run: TrainingRun) -> bool:
    if not run.exported and time.time() - run.active < IDLE_SECONDS:
        return True
    with _idle(store.root / RUNS / run.name) as idle:
        return not idle


def remove(store: Store, run: TrainingRun) -> bool:
    """Removes a run with everything that belongs to it, and keeps its configuration. Returns False when a
    process works on it.
    """
    directory = store.root / RUNS / run.name
    with _idle(directory) as idle:
        if not idle:
            return False
        config = directory / "config.yaml"
        if config.exists():
            record = store.root / RECORDS / f"{run.name}.yaml"
            write_atomically(record, config.read_bytes())
            store.files.push(record)
            config.unlink()
        for path in run.paths:
            # The manifest goes first, so that nobody opens a version that is half removed.
            (path / "manifest.json").unlink(missing_ok=True)
            _remove(store.files, path)
    return True


def surplus_checkpoints(store: Store, keep: int, recipe: str, needed: Iterable[Path] = ()) -> list[Path]:
    """The checkpoints beyond the newest `keep` of each exported run of a recipe. Those that
    `checkpoint.keep_every_tokens` asks for stay, and so do all of a run whose weights another started from.
    """
    runs = training_runs(store)
    wanted = [*needed, *(run.base for run in runs if run.base)]
    surplus = []
    for run in runs:
        directory = store.root / RUNS / run.name
        done = run.recipe == recipe and run.exported and (directory / "config.yaml").exists()
        if done and not any(run.holds(path) for path in wanted):
            training = load_run_config(directory / "config.yaml").training
            every = training.checkpoint.keep_every_tokens
            saved = sorted(directory.glob("checkpoints/step-*/manifest.json"))[: -max(keep, 1)]
            surplus += [
                path.parent
                for path in saved
                if every is None
                or not training.curriculum.passes(int(path.parent.name.removeprefix("step-")), every)
            ]
    return surplus


def enforce(
    store: Store, recipe: str, runs: int | None, checkpoints: int | None, needed: Iterable[Path] = ()
) -> tuple[int, int]:
    """Removes what a recipe's retention does not keep. Returns how many runs and checkpoints it removed."""
    removed, surplus = 0, []
    if runs is not None:
        removed = sum([remove(store, run) for run in removable(store, runs, recipe, needed)])
    if checkpoints is not None:
        surplus = surplus_checkpoints(store, checkpoints, recipe, needed)
        for path in surplus:
            _remove(store.files, path)
    return removed, len(surplus)


def _remove(files: Files, path: Path) -> None:
    """Renames first, so that a kill during the removal leaves nothing partial under the name."""
    files.remove(path)
    doomed = unpublished(path)
    shutil.rmtree(doomed, ignore_errors=True)  # left by a killed process
    path.rename(doomed)
    shutil.rmtree(doomed)


def _idle(run: Path) -> AbstractContextManager[bool]:
    """Yields whether no trainer works in the directory of a run. If so, none can start before this exits."""
    return locks.alone(run / ".lock") if run.exists() else nullcontext(True)


def _json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
