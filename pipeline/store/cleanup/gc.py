"""Garbage collection: one policy of what stays in a store, and the removal of everything else.

The versions that each recipe used last stay, and so do those in the lineage of a training run, which its
configuration and checkpoints hold. Tokenizers (which are frozen), training runs, trained models, evaluations
and exports always stay, but for the runs and checkpoints beyond a limit. What was moved aside never does.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.store import keys, last_versions, locks
from pipeline.store.cleanup.old_runs import (
    Limits,
    StoredRun,
    intact,
    old_runs,
    surplus_checkpoints,
    training_runs,
    whole_lineage,
)
from pipeline.store.files import DAMAGED, MANIFEST, Files, reports_on
from pipeline.store.keys import FORGOTTEN, RECIPES, RUNS, Key
from pipeline.store.last_versions import VERSION_NAME
from pipeline.store.training_runs import RECORDS
from pipeline.store.versions import Versions
from trainer.system.durable import atomic_file, link_or_copy, read_json, unpublished

# A killed stage resumes from its partial directory; one that was not touched for a day is abandoned.
UNFINISHED_AFTER_SECONDS = 24 * 3600.0
NO_KEYS = (RUNS, RECIPES, FORGOTTEN, RECORDS)  # the other folders of a store
NO_LIMITS = Limits()


@dataclass(frozen=True)
class Garbage:
    """What nothing refers to: a version, a file that was left, or a training run or a checkpoint that the
    limits do not keep.

    `place`: its path in the store. `bytes`: what removing it together with all other garbage frees, so
    without files that versions in use share. `run`: the directory of the run that it belongs to.
    """

    place: str
    paths: tuple[Path, ...]
    bytes: int = 0
    why: str = "nothing names it"
    run: Path | None = None


@dataclass(frozen=True)
class Use:
    """What part of a store takes. `what` is a path in the store, and `named_by` says why it is kept."""

    what: str
    bytes: int
    named_by: str


def find(
    store: Versions, limits: Limits = NO_LIMITS, runs: Sequence[StoredRun] | None = None
) -> list[Garbage]:
    """The garbage that could be removed now. `runs`: the training runs, if they were read already."""
    garbage = retirable(store, limits, runs)
    there = store.files.versions()
    kept = _referenced(store, [path for item in garbage for path in item.paths])
    for path in _versions(store) if there is None else sorted(there):
        if path in kept or (there is None and _is_foreign(store, path)):
            continue
        moved_aside = path.suffix.startswith(f".{DAMAGED}-")
        if moved_aside or store.key_of(path.parent).is_data:
            garbage.append(Garbage(_place(store, path), (path,)))
    garbage += _left_files(store, [path for item in garbage for path in item.paths])
    sizes = _freed([item.paths for item in garbage])
    if there is not None:
        sizes = [there.get(item.paths[0], size) for item, size in zip(garbage, sizes, strict=True)]
    return [replace(item, bytes=size) for item, size in zip(garbage, sizes, strict=True)]


def _is_foreign(store: Versions, path: Path) -> bool:
    """Whether a manifest says that its directory is no version of this key, but the copy of one, or somebody
    else's.
    """
    with suppress(OSError, ValueError):  # it is missing or damaged
        manifest = read_json(path / MANIFEST)
        return not isinstance(manifest, dict) or manifest.get("key") != store.key_of(path.parent)
    return False


def _left_files(store: Versions, removed: Sequence[Path]) -> Iterator[Garbage]:
    """The files that killed processes left under temporary names (`whole_file`), but for those in what is
    `removed` anyway.
    """
    abandoned_before = time.time() - UNFINISHED_AFTER_SECONDS
    for path in sorted(store.root.rglob(".*.tmp")):
        abandoned = path.is_file() and path.stat().st_mtime < abandoned_before
        if abandoned and not any(path.is_relative_to(folder) for folder in removed):
            yield Garbage(_place(store, path), (path,), why="a killed process left it")


def retirable(store: Versions, limits: Limits, runs: Sequence[StoredRun] | None = None) -> list[Garbage]:
    """The runs and checkpoints that the limits do not keep."""
    if limits.runs is None and limits.checkpoints is None:
        return []
    runs = training_runs(store) if runs is None else runs
    old = old_runs(store, runs, limits)
    surplus = [(run, path) for run, path in surplus_checkpoints(runs, limits) if run not in old]
    found = [(run, run.directory, run.paths) for run in old]
    found += [(run, path, (path,)) for run, path in surplus]
    return [
        Garbage(_place(store, path), paths, why=run.described, run=run.directory)
        for run, path, paths in found
    ]


def remove(store: Versions, garbage: Iterable[Garbage]) -> list[Garbage]:
    """Removes what is still garbage; returns it. Raises PipelineError while a run prepares data."""
    with store.idle():
        removed = [item for item in garbage if item.run and retire(store, item)]
        store.files.versions()
        kept = _referenced(store, [])
        for item in garbage:
            if not item.run and item.paths[0] not in kept:
                discard(store, item.paths[0])
                removed.append(item)
    return removed


def retire(store: Versions, item: Garbage) -> bool:
    """Removes a run with everything that belongs to it, but keeps its configuration, from which `lineage`
    answers; or one of its checkpoints. Returns False when a process works on the run.
    """
    assert item.run is not None
    with locks.idle_run(item.run) as nobody_works:
        config = item.run / "config.yaml"
        if nobody_works and item.run in item.paths and config.exists():
            record = store.root / RECORDS / f"{item.run.name}.yaml"
            record.unlink(missing_ok=True)  # of an earlier training of the same name
            with atomic_file(record) as temporary:
                link_or_copy(config, temporary)  # a copy needs room, and a full disk has none
            store.files.push(record)
        for path in item.paths if nobody_works else ():
            discard(store, path)
    return nobody_works


def discard(store: Versions, path: Path) -> None:
    """Removes a version, a run, a checkpoint or a left file, and the records of recipes that used it last."""
    if path.is_file():  # of `_left_files`: nothing names it
        path.unlink()
        return
    # What names and describes it goes before it: by what is gone, a repetition would not find them.
    for record in last_versions.naming(store.root, _place(store, path)):
        store.files.remove(record)
        record.unlink(missing_ok=True)
    store.files.remove(reports_on(path))
    shutil.rmtree(reports_on(path), ignore_errors=True)
    # The manifest goes first, and then the name, so that nobody opens what is half removed.
    (path / MANIFEST).unlink(missing_ok=True)
    store.files.remove(path)
    doomed = unpublished(path)
    shutil.rmtree(doomed, ignore_errors=True)  # left by a killed process
    if path.exists():
        path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _place(store: Versions, path: Path) -> str:
    return path.relative_to(store.root).as_posix()


def published(files: Files) -> Iterator[Path]:
    """The directories of all versions, also of those that have lost their manifest."""
    folders = [path for path in files.root.glob("[!.]*") if path.name not in NO_KEYS]
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if VERSION_NAME.fullmatch(path.name) and files.is_version(path):
            yield path


def _versions(store: Versions) -> Iterator[Path]:
    """Published versions, abandoned attempts, and what was moved aside or is half removed."""
    yield from published(store.files)
    abandoned_before = time.time() - UNFINISHED_AFTER_SECONDS
    for path in sorted(store.root.rglob(".*")):
        # Among training runs lie means in the making, and runs and checkpoints that are half removed.
        if path.relative_to(store.root).parts[0] in (RECIPES, FORGOTTEN, RECORDS) or not path.is_dir():
            continue
        unfinished = path.suffix in (".partial", ".tmp") and _last_touched(path) < abandoned_before
        if unfinished or path.suffix.startswith(f".{DAMAGED}-"):
            yield path


def _last_touched(directory: Path) -> float:
    """When anything in a directory changed last: a part of a version changes a folder in it."""
    with suppress(FileNotFoundError):  # a process that ends takes it away meanwhile
        return max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
    return time.time()


def _referenced(store: Versions, removed: Sequence[Path]) -> set[Path]:
    """The versions recipes used last, and those in the lineage of runs and exports that are not `removed`."""
    referenced = {store.root / key / name for key, name in last_versions.recorded(store.files)}
    lineages = ("config.yaml", "checkpoints/*/lineage.json")
    patterns = [*(f"{RUNS}/*/{name}" for name in lineages), f"{keys.EXPORTED_MODEL}/[!.]*/lineage.json"]
    for path in (path for pattern in patterns for path in store.root.glob(pattern)):
        if any(path.is_relative_to(folder) for folder in removed):
            continue
        with intact(path) as found:
            assets = whole_lineage(path, found).get("assets", {})
            referenced |= {store.root / asset["path"] for asset in assets.values()}
    return referenced | set(_indexes(store, referenced))


def _indexes(store: Versions, referenced: set[Path]) -> Iterator[Path]:
    """The indexes of what is referenced: a question made them, and nothing names them."""
    for family, indexed in keys.INDEXED.items():
        for folder in store.root.glob(f"{family}/*"):
            key = indexed(folder.name)
            kept = {version.data_version for version in store.newest_first(key) if version.path in referenced}
            made = store.newest_first(Key(family, folder.name))
            yield from (index.path for index in made if index.manifest["inputs"][key] in kept)


def _freed(groups: Sequence[Sequence[Path]]) -> list[int]:
    """Bytes that removing all directories frees, by group: files all of whose hard links are in them, each
    counted once.
    """
    found = [
        (number, path.lstat())
        for number, directories in enumerate(groups)
        for directory in directories
        for path in (directory, *directory.rglob("*"))
        if path.is_file()
    ]
    links = Counter((stat.st_dev, stat.st_ino) for _, stat in found)
    freed = [0] * len(groups)
    for number, stat in found:
        # None once the file is counted.
        if links.get(inode := (stat.st_dev, stat.st_ino)) == stat.st_nlink:
            del links[inode]
            freed[number] += stat.st_size
    return freed


def bytes_below(paths: Iterable[Path], counted: set[tuple[int, int]] | None = None) -> int:
    """The size of all files below `paths`; each counts once over all calls with the same `counted`."""
    counted, total = set() if counted is None else counted, 0
    for path in paths:
        for file in [path] if path.is_file() else path.rglob("*"):
            try:
                stat = file.lstat()
            except FileNotFoundError:  # removed meanwhile
                continue
            inode = (stat.st_dev, stat.st_ino)
            if not file.is_dir() and inode not in counted:
                counted.add(inode)
                total += stat.st_size
    return total


def uses(store: Versions, limits: Limits = NO_LIMITS) -> list[Use]:
    """What takes how much and what `remove` would free, per key and per training run, largest first."""
    runs = training_runs(store)
    garbage = {path for item in find(store, limits, runs) for path in item.paths}
    counted: set[tuple[int, int]] = set()
    rows = []
    for run in runs:
        goes = ", which `gc --delete` removes" if garbage & set(run.paths) else ""
        size = bytes_below(run.paths, counted)
        rows.append(Use(_place(store, run.directory), size, f"{run.described}{goes}"))
    folders = {path.parent for path in published(store.files)}
    for folder in sorted(folders):
        key = store.key_of(folder)
        if key.is_data or key == keys.TOKENIZER:
            there = [path.parent for path in folder.glob(f"[!.]*/{MANIFEST}")]
            unnamed = sum(path in garbage for path in there)
            aside = sum(path.parent == folder and path not in there for path in garbage)
            named = f"versions in use or recorded by a run: {len(there) - unnamed}"
            goes = f"; others: {unnamed + aside}, which `gc --delete` removes" if unnamed + aside else ""
            rows.append(Use(key, bytes_below([folder], counted), named + goes))
    rest = [path for path in store.root.iterdir() if path.name not in (RUNS, RECORDS)]
    rest += (store.root / RUNS).glob(".*")
    rows.append(Use("the rest", bytes_below(rest, counted), "hashes of files, reports, records"))
    return sorted(rows, key=lambda use: (-use.bytes, use.what))
