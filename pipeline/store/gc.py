"""Versions that nothing names any more: found, weighed, and removed on request.

What is in use stays, and what the lineage of a training run names: each run's configuration holds the lineage
that its checkpoints carry. Tokenizers are frozen, so they stay; so do training runs, trained models,
evaluations and exports.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.store import keys
from pipeline.store.training_runs import RUNS
from pipeline.store.versions import Store, reports_on

DATA = (keys.CORPORA, keys.DEDUP, keys.DEDUP_EVIDENCE, keys.EVALUATION_NGRAMS, keys.TOKEN_SHARDS)
# a killed stage resumes from its partial directory; after a day nobody came back for it
UNFINISHED_AFTER_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Garbage:
    """A directory that nothing names, and what removing it together with all the rest frees: files that
    others share are not counted.
    """

    path: Path
    bytes: int


def find(store: Store) -> list[Garbage]:
    """What could be removed now, ordered by path."""
    named = _named(store)
    unnamed = [path for path in _versions(store) if path not in named]
    freed = _freed(unnamed)
    return [Garbage(path, freed[path]) for path in unnamed]


def remove(store: Store, garbage: list[Garbage]) -> list[Garbage]:
    """Removes what nobody is working on and nobody took into use since it was found; what was removed."""
    removed = []
    for one in garbage:
        with store.idle(one.path.parent.relative_to(store.root).as_posix()) as idle:
            if idle and not _in_use(one.path):
                # The manifest goes first, so that a version that is half removed is not taken for whole.
                (one.path / "manifest.json").unlink(missing_ok=True)
                shutil.rmtree(one.path)
                shutil.rmtree(reports_on(one.path), ignore_errors=True)
                removed.append(one)
    return removed


def _in_use(path: Path) -> bool:
    pointer = path.with_name("current")
    return pointer.exists() and pointer.read_text().strip() == path.name


def _versions(store: Store) -> Iterator[Path]:
    """Whole versions, and attempts that were given up."""
    for path in sorted(found for family in DATA for found in (store.root / family).rglob("*")):
        whole = (path / "manifest.json").is_file()
        given_up = (
            path.name.endswith(".partial")
            and path.is_dir()
            and time.time() - path.stat().st_mtime > UNFINISHED_AFTER_SECONDS
        )
        if whole or given_up:
            yield path


def _named(store: Store) -> set[Path]:
    named = {
        pointer.with_name(pointer.read_text().strip())
        for family in DATA
        for pointer in (store.root / family).rglob("current")
    }
    for lineage in _lineages(store):
        named |= {store.root / asset["path"] for asset in lineage.get("assets", {}).values()}
    return named


def _lineages(store: Store) -> Iterator[dict[str, Any]]:
    for path in (store.root / RUNS).glob("*/config.yaml"):
        yield yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).get("lineage", {})
    for path in (store.root / RUNS).glob("*/checkpoints/*/lineage.json"):
        yield json.loads(path.read_text(encoding="utf-8"))
    for path in (store.root / keys.EXPORTED_MODEL).glob("*/lineage.json"):
        yield json.loads(path.read_text(encoding="utf-8"))


def _freed(directories: list[Path]) -> dict[Path, int]:
    """Bytes on disk of each directory's files all of whose hard links are in one of `directories`; each file
    is counted once.
    """
    files = [
        (directory, found.stat())
        for directory in directories
        for found in directory.rglob("*")
        if found.is_file()
    ]
    links = Counter((stat.st_dev, stat.st_ino) for _, stat in files)
    freed = dict.fromkeys(directories, 0)
    counted = set()
    for directory, stat in files:
        inode = (stat.st_dev, stat.st_ino)
        if links[inode] == stat.st_nlink and inode not in counted:
            counted.add(inode)
            freed[directory] += stat.st_size
    return freed
