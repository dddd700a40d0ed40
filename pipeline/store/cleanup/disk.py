"""How much disk the store takes, for what, and what names it."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.store import keys
from pipeline.store.cleanup import gc, retention
from pipeline.store.keys import RUNS
from pipeline.store.manifest import DAMAGED
from pipeline.store.store import Store

Counted = set[tuple[int, int]]


@dataclass(frozen=True)
class Use:
    """A row of the table. `what` is a path in the store; `named_by` says why it is kept."""

    what: str
    bytes: int
    named_by: str


def bytes_below(paths: Iterable[Path], counted: Counted | None = None) -> int:
    """The size of all files below `paths`. A file with several names counts once, also over several calls
    with the same `counted`.
    """
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


def free(store: Store) -> int:
    """Bytes that are free on the disk of the store."""
    return shutil.disk_usage(store.root).free


def table(store: Store) -> list[Use]:
    """A row for each key of the data and for each training run with all that belongs to it, the largest
    first.
    """
    counted: Counted = set()
    runs = retention.training_runs(store)
    uses = [
        Use(f"{RUNS}/{run.name}", bytes_below(run.paths, counted), f"recipe {run.recipe}, {run.state}")
        for run in runs
    ]
    garbage = {item.path for item in gc.find(store)}
    for key in sorted(_data_keys(store)):
        versions = [path.parent for path in store.directory(key).glob("[!.]*/manifest.json")]
        unnamed = sum(path in garbage for path in versions)
        named = f"versions in use or recorded by a run: {len(versions) - unnamed}"
        if unnamed:
            named += f"; others: {unnamed}, which `gc --delete` removes"
        aside = sum(path.parent == store.directory(key) and f".{DAMAGED}-" in path.name for path in garbage)
        if aside:
            named += f"; damaged and moved aside: {aside}, which `gc --delete` removes"
        uses.append(Use(key, bytes_below([store.directory(key)], counted), named))
    rest = [path for path in store.root.iterdir() if path.name not in (RUNS, retention.RECORDS)]
    uses.append(Use("the rest", bytes_below(rest, counted), "hashes of files, reports, records"))
    return sorted(uses, key=lambda use: (-use.bytes, use.what))


def _data_keys(store: Store) -> Iterator[str]:
    for family in (*gc.DATA, keys.TOKENIZER):
        manifests = (store.root / family).rglob("manifest.json")
        yield from {path.parents[1].relative_to(store.root).as_posix() for path in manifests}
