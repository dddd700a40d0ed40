"""Garbage collection: finds versions that nothing refers to, and removes them on request.

The versions that each recipe used last stay, and so do those in the lineage of a training run, which its
configuration and checkpoints hold. Tokenizers (which are frozen), training runs, trained models, evaluations
and exports always stay. Damaged versions that were moved aside never do.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from pipeline.store import keys, last_versions
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST, Files
from pipeline.store.keys import RUNS
from pipeline.store.manifest import DAMAGED, reports_on
from pipeline.store.store import Store

DATA = (keys.CORPORA, keys.DEDUP, keys.DEDUP_EVIDENCE, keys.EVALUATION_NGRAMS, keys.TOKEN_SHARDS)
FAMILIES = (
    *DATA,
    keys.TOKENIZER,
    keys.MIXTURE_SEARCH,
    keys.PRETRAINED_MODEL,
    keys.EVALUATION,
    keys.CHECKPOINT_EVALUATION,
    keys.BENCHMARKS,
    keys.EXPORTED_MODEL,
)
# A killed stage resumes from its partial directory; one that was not touched for a day is abandoned.
UNFINISHED_AFTER_SECONDS = 24 * 3600.0


class GarbageError(PipelineError):
    """Nothing can be removed now."""


@dataclass(frozen=True)
class Garbage:
    """A directory that nothing refers to. `bytes`: what removing it together with all other garbage frees, so
    without files that versions in use share.
    """

    path: Path
    bytes: int


def find(store: Store) -> list[Garbage]:
    """The garbage that could be removed now, ordered by path."""
    there = store.files.versions()
    kept = _referenced(store)
    if there is not None:
        data = [path for path in sorted(there) if path.relative_to(store.root).parts[0] in DATA]
        return [Garbage(path, there[path]) for path in data if path not in kept]
    garbage = [path for path in _versions(store) if path not in kept]
    freed = _freed(garbage)
    return [Garbage(path, freed[path]) for path in garbage]


def remove(store: Store, garbage: list[Garbage]) -> list[Garbage]:
    """Removes what is still garbage, and returns it. Raises GarbageError while a run prepares data, because
    that run may use versions that nothing names yet.
    """
    with store.idle() as idle:
        if not idle:
            raise GarbageError(
                "a run is preparing data in this store, so nothing was removed: repeat this once the run "
                "trains or has ended"
            )
        store.files.abort_old_uploads()
        store.files.versions()
        kept = _referenced(store)
        removed = [item for item in garbage if item.path not in kept]
        for item in removed:
            # The manifest goes first, so that nobody opens a version that is half removed.
            (item.path / MANIFEST).unlink(missing_ok=True)
            store.files.remove(item.path)
            store.files.remove(reports_on(item.path))
            shutil.rmtree(item.path, ignore_errors=store.files.shared)
            shutil.rmtree(reports_on(item.path), ignore_errors=True)
    return removed


def _versions(store: Store) -> Iterator[Path]:
    """Published versions, also without a manifest, abandoned attempts, and what was moved aside."""
    yield from published(store.files, DATA)
    abandoned_before = time.time() - UNFINISHED_AFTER_SECONDS
    for path in sorted(path for family in DATA for path in (store.root / family).rglob(".*.partial")):
        if path.is_dir() and path.stat().st_mtime < abandoned_before:
            yield path
    aside = f".*.{DAMAGED}-*"
    yield from sorted(path for family in FAMILIES for path in (store.root / family).rglob(aside))


def published(files: Files, families: Sequence[str] = FAMILIES) -> Iterator[Path]:
    """The directories of versions below these keys, also those that have lost their manifest."""
    for path in sorted(path for family in families for path in (files.root / family).rglob("*")):
        if not path.name.startswith(".") and files.is_version(path):
            yield path


def _referenced(store: Store) -> set[Path]:
    """The versions that recipes used last, and those in the lineage of a run, a checkpoint or an export."""
    referenced = {store.root / key / name for key, name in last_versions.recorded(store.files)}
    for path in (store.root / RUNS).glob("*/config.yaml"):
        referenced |= _assets(store, path)
    for pattern in (f"{RUNS}/*/checkpoints/*/lineage.json", f"{keys.EXPORTED_MODEL}/[!.]*/lineage.json"):
        for path in store.root.glob(pattern):
            referenced |= _assets(store, path)
    return referenced


def _assets(store: Store, path: Path) -> set[Path]:
    """The versions that a file with a lineage names. Raises GarbageError when it is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            lineage = json.loads(text)
        else:
            lineage = yaml.load(text, Loader=yaml.CSafeLoader).get("lineage", {})
        return {store.root / asset["path"] for asset in lineage.get("assets", {}).values()}
    except (ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise GarbageError(
            f"{path} is damaged ({first_line(error)}), so it cannot be told which versions it names, and "
            f"nothing is removed: put it back from a copy, or remove {path.parent}"
        ) from error


def _freed(directories: list[Path]) -> dict[Path, int]:
    """Bytes that removing all `directories` frees, by directory: files all of whose hard links are in them,
    each counted once.
    """
    paths = [(directory, path) for directory in directories for path in directory.rglob("*")]
    files = [(directory, path.stat()) for directory, path in paths if path.is_file()]
    links = Counter((stat.st_dev, stat.st_ino) for _, stat in files)
    freed = dict.fromkeys(directories, 0)
    for directory, stat in files:
        # None once the file is counted.
        if links.get(inode := (stat.st_dev, stat.st_ino)) == stat.st_nlink:
            del links[inode]
            freed[directory] += stat.st_size
    return freed
