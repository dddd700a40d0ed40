"""Old training runs: which of them a limit does not keep, with everything that was made from them.

A training run is its directory in `runs`, its version of pretrained_model, and the evaluations and exports of
that version.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.store import keys, last_versions, locks
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST
from pipeline.store.keys import RUNS
from pipeline.store.last_versions import VERSION_NAME
from pipeline.store.versions import Versions
from trainer.config import load_run_config
from trainer.system import yaml_file
from trainer.system.run_directory import RunDirectory, with_present_places
from trainer.system.run_history import MERGED, NAME_LENGTH, RunHistory

MADE_FROM_RUN = (keys.PRETRAINED_MODEL, keys.EVALUATION, keys.EXPORTED_MODEL)
# A run that is not exported and was active since then may be waiting for its evaluation, or to be restarted.
IDLE_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Limits:
    """How many of the newest training runs of each recipe and variant stay, and how many checkpoints of each
    exported run; None: all. They hold for all recipes, or for one `recipe`. What is `needed` stays.
    """

    runs: int | None = None
    checkpoints: int | None = None
    recipe: str | None = None
    needed: tuple[Path, ...] = ()


@dataclass(frozen=True)
class StoredRun:
    """A training run on disk. `paths`: everything that belongs to it; `base`: the weights that it started
    from, if they are files; `active`: when it last wrote something, in seconds since 1970.
    """

    directory: Path
    lineage: Mapping[str, Any]
    paths: tuple[Path, ...]
    base: Path | None
    active: float
    exported: bool

    @property
    def recipe(self) -> str:
        return self.lineage.get("recipe", {}).get("name", "unknown")

    @property
    def described(self) -> str:
        return f"recipe {self.recipe}, {'exported' if self.exported else 'not exported'}"

    @property
    def config(self) -> Path:
        return self.directory / "config.yaml"

    def holds(self, path: Path) -> bool:
        """Whether a path lies in something that belongs to the run."""
        return any(path.is_relative_to(own) for own in self.paths)


def training_runs(store: Versions) -> list[StoredRun]:
    """All training runs, the newest first; also those whose directory was deleted by hand."""
    store.files.pull_runs()
    models = {version.path.name: version for version in store.newest_first(keys.PRETRAINED_MODEL)}
    derived = [
        (version.path, version.manifest["inputs"].get(keys.PRETRAINED_MODEL))
        for key in (keys.EVALUATION, keys.EXPORTED_MODEL)
        for version in sorted(store.newest_first(key), key=lambda version: version.path)
    ]
    runs = []
    for name in {path.parent.name for path in (store.root / RUNS).glob("[!.]*/config.yaml")} | models.keys():
        made = [path for path, model in derived if name in models and model == models[name].data_version]
        made += [models[name].path] if name in models else []
        for family in (keys.CHECKPOINT_EVALUATION, keys.BENCHMARKS, keys.IMPORTED):
            made += (store.root / family).glob(f"{name[:NAME_LENGTH]}-*")
        runs.append(_described(store.root / RUNS / name, made))
    return sorted(runs, key=lambda run: (-run.active, run.directory.name))


def _described(directory: Path, made: list[Path]) -> StoredRun:
    lineage: dict[str, Any] = {}
    base = None
    if (directory / "config.yaml").exists():
        with intact(directory / "config.yaml") as config:
            lineage = whole_lineage(directory / "config.yaml", config)
            training = with_present_places(config, directory / "config.yaml").get("training")
            base = ((training or {}).get("pretrained") or {}).get("path")
    exports = [path for path in made if path.parent.name == keys.EXPORTED_MODEL]
    if exports and not lineage:
        with intact(exports[0] / "lineage.json") as found:
            lineage = whole_lineage(exports[0] / "lineage.json", found)
    written = [directory / "config.yaml", directory / "metrics.jsonl", *(path / MANIFEST for path in made)]
    return StoredRun(
        directory,
        lineage,
        (*([directory] if directory.exists() else []), *made),
        Path(base) if base else None,
        max((path.stat().st_mtime for path in written if path.exists()), default=0.0),
        bool(exports),
    )


def lineage_in(found: Any) -> dict[str, Any]:
    """A lineage as its file holds it, if it has the form on which its readers rely. Raises AttributeError and
    TypeError.
    """
    assets = found.get("assets", {})
    if not all(isinstance(one, dict) for one in (found.get("recipe", {}), *assets.values())):
        raise TypeError("`recipe` and each of `assets` must be mappings")
    return dict(found)


def whole_lineage(path: Path, found: Any) -> dict[str, Any]:
    """The lineage in what `intact` yields of `path`, for those who remove what none names. A run of a store
    has one, whose `dedup` was written behind the versions: a file in YAML that was cut is valid YAML. Raises
    as `lineage_in`, and ValueError.
    """
    lineage = lineage_in(found if path.suffix == ".json" else found.get("lineage") or {})
    of_a_store = any(map(VERSION_NAME.fullmatch, (path.parent.name, path.parents[2].name)))
    if of_a_store and not (lineage.get("assets") and "dedup" in lineage):
        raise ValueError("it is empty, or was cut off")
    return lineage


@contextmanager
def intact(path: Path) -> Iterator[dict[str, Any]]:
    """Yields a `lineage.json`, or the configuration of a run, which has a `lineage`. Raises PipelineError
    when it is damaged, also when that is found while it is used.
    """
    try:
        text = path.read_text(encoding="utf-8")
        yield json.loads(text) if path.suffix == ".json" else yaml_file.parse(text)
    except (ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{path} is damaged ({first_line(error)}), so it cannot be told which versions it names, and "
            f"nothing is removed: put it back from a copy, or remove {path.parent}"
        ) from error


def old_runs(store: Versions, runs: Sequence[StoredRun], limits: Limits) -> list[StoredRun]:
    """The runs that the limits do not keep, the newest first, of `runs`, which are all of a store. A run
    stays while it is in use or in progress, if it has a pinned checkpoint or is needed, and if a run that
    stays started from its weights.
    """
    if limits.runs is None:
        return []
    by_variant: dict[tuple[str, str, bool], list[StoredRun]] = {}
    for run in runs:  # a mean is in no training's place
        variant = (run.recipe, run.lineage.get("variant", ""), MERGED in run.lineage)
        by_variant.setdefault(variant, []).append(run)
    old = [
        run
        for (name, *_), group in by_variant.items()
        for run in group[max(limits.runs, 1) :]
        if limits.recipe in (None, name) and not _is_in_progress(run)
    ]
    used_last = last_versions.recorded(store.files, changes_kept=0)
    wanted = [store.root / key / name for key, name in used_last if key in MADE_FROM_RUN]
    wanted += [*limits.needed, *(run.base for run in runs if run.base and run not in old)]
    wanted += [run.directory for run in runs if RunDirectory(run.directory).pinned()]
    while wanted:
        path = wanted.pop()
        for run in [run for run in old if run.holds(path)]:
            old.remove(run)
            wanted += [run.base] if run.base else []
    return old


def _is_in_progress(run: StoredRun) -> bool:
    if not run.exported and time.time() - run.active < IDLE_SECONDS:
        return True
    with locks.idle_run(run.directory) as nobody_works:
        return not nobody_works


def surplus_checkpoints(runs: Sequence[StoredRun], limits: Limits) -> Iterator[tuple[StoredRun, Path]]:
    """The checkpoints beyond the newest ones of each exported run of a store. Those that are pinned or that
    `checkpoint.keep_every_tokens` asks for stay, and so do all of a run whose weights another started from.
    """
    if limits.checkpoints is None:
        return
    wanted = [*limits.needed, *(run.base for run in runs if run.base)]
    for run in runs:
        done = limits.recipe in (None, run.recipe) and run.exported and run.config.exists()
        if not done or any(run.holds(path) for path in wanted):
            continue
        training = load_run_config(run.config).training
        every = training.checkpoint.keep_every_tokens
        saved = list(RunHistory(run.directory).checkpoints().items())
        pinned = RunDirectory(run.directory).pinned()
        for step, checkpoint in saved[: -max(limits.checkpoints, 1)]:
            asked = every is not None and training.curriculum.passes(step, every)
            asked |= training.checkpoint.keeps_branch_points and step in training.curriculum.branch_steps
            if not asked and checkpoint.name not in pinned:
                yield run, checkpoint
