"""What holds forgotten documents: a version by the ids in its tables, one without ids by what it was
made from, and a run by what it was trained on.
"""

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.store import keys
from pipeline.store.cleanup.gc import Garbage, bytes_below, discard, published, retire
from pipeline.store.cleanup.old_runs import StoredRun, training_runs
from pipeline.store.errors import PipelineError
from pipeline.store.files import MANIFEST, reports_on
from pipeline.store.forgotten import Among, part_names
from pipeline.store.keys import Key
from pipeline.store.last_versions import VERSION_NAME
from pipeline.store.manifest import Part, Version
from pipeline.store.training_runs import RECORDS
from pipeline.store.versions import Versions
from trainer.system.run_history import MERGED

UNFINISHED = (".*.partial", ".*.tmp", ".*.damaged-*")


@dataclass(frozen=True)
class Holding:
    """What holds documents: versions, evaluations and exports among them, and runs. The work in `unfinished`
    may hold them.
    """

    versions: list[Version]
    runs: list[StoredRun]
    unfinished: list[Path]

    def of(self, stage: str) -> list[Version]:
        """The versions of a stage."""
        return [version for version in self.versions if version.key.stage == stage]

    @property
    def marks(self) -> set[str]:
        """The names and data versions by which the events of a Dagster run mention what it made or read."""
        versions = {name for version in self.versions for name in (version.path.name, version.data_version)}
        return versions | {run.directory.name for run in self.runs}

    @property
    def bytes(self) -> int:
        """What removing it frees, or more, if files are also those of other versions."""
        return bytes_below(
            [*(version.path for version in self.versions), *(run.directory for run in self.runs)]
        )


def holding(store: Versions, among: Among, tokenizers: bool = False) -> Holding:
    """What holds any of the documents, whatever their corpora. With `tokenizers` also those that were trained
    on them, which hold none of their text. Raises StoreError for a version whose manifest is damaged.
    """
    paths = sorted({*(store.files.versions() or ()), *published(store.files)})
    complete = [path for path in paths if (path / MANIFEST).is_file()]
    versions = {path: store.open(store.key_of(path.parent), path.name) for path in complete}
    made: dict[tuple[str, str], list[Path]] = defaultdict(list)
    decisions: dict[tuple[str, str], tuple[Version, Part]] = {}
    for one in versions.values():
        made[one.key, one.data_version].append(one.path)
        if one.key == keys.DEDUP:
            decisions |= {
                (Key(keys.DEDUP, name=part.name), part.data_version): (one, part) for part in one.parts
            }

    def pair_holds(pair: tuple[str, str]) -> bool:
        if pair in decisions:
            return bool(part_names(*decisions[pair], among))
        # the same bytes may also have been made without the documents
        return bool(made[pair]) and all(map(holds, made[pair]))

    @cache
    def holds(path: Path) -> bool:
        one = versions[path]
        if one.key == keys.TOKENIZER and not tokenizers:
            return False
        found = [named for part in one.parts if (named := part_names(one, part, among)) is not None]
        return any(found) if found else any(map(pair_holds, one.manifest["inputs"].items()))

    runs = [run for run in training_runs(store) if any(map(pair_holds, _trained_on(run)))]
    held = [path for path in versions if holds(path) or any(run.holds(path) for run in runs)]
    return Holding([versions[path] for path in held], runs, [path for path in paths if path not in versions])


def _trained_on(run: StoredRun) -> Iterator[tuple[str, str]]:
    """Key and data version of what a run was trained on, itself or through the weights it started from, or of
    which it is a mean.
    """
    lineages: list[Mapping[str, Any]] = [run.lineage]
    while lineages:
        lineage = lineages.pop()
        for key, asset in lineage.get("assets", {}).items():
            if Key.from_path(key).stage == keys.TOKEN_SHARDS:
                yield key, asset["data_version"]
        parents = (lineage.get("pretrained"), *lineage.get(MERGED, ()))
        lineages += [parent["lineage"] for parent in parents if parent and parent.get("lineage")]


def delete(store: Versions, holding: Holding) -> None:
    """Removes what holds the documents. Runs go first, and a version goes before those that it was made from,
    so that a killed deletion can go on. Raises PipelineError while a run prepares data, or trains on the
    documents.
    """
    with store.idle():
        newest_first = sorted(holding.versions, key=_made_at, reverse=True)
        for run in holding.runs:
            if not retire(store, Garbage(run.directory.name, run.paths, run=run.directory)):
                raise PipelineError(f"{run.directory} is being trained: stop it, and repeat this")
        for path in [*(version.path for version in newest_first), *holding.unfinished]:
            discard(store, path)
        for path in [path for name in UNFINISHED for path in store.root.rglob(name) if path.is_dir()]:
            if not path.match(f"{keys.RUNS}/*/*/*"):  # a run that stays may be saving it
                store.files.remove(path)
                shutil.rmtree(path)
        if store.files.shared:
            _drop_copies(store)
        # the texts on which a tokenizer was tried
        for path in published(store.files):
            if path.parent.name == keys.TOKENIZER:
                store.files.remove(reports_on(path))
                shutil.rmtree(reports_on(path), ignore_errors=True)


def _made_at(version: Version) -> tuple[str, int]:
    return version.manifest["finished"], (version.path / MANIFEST).stat().st_mtime_ns


def _drop_copies(store: Versions) -> None:
    """Drops this machine's copies of what is no longer in the bucket, as `holding` found."""
    store.files.pull_folder(store.root / RECORDS)
    for path in [path for path in store.root.rglob("*") if VERSION_NAME.fullmatch(path.name)]:
        record = store.root / RECORDS / f"{path.name}.yaml"
        is_run = path.parent == store.root / keys.RUNS
        if record.exists() if is_run else not (path / MANIFEST).exists():
            for folder in (path, reports_on(path)):
                shutil.rmtree(folder, ignore_errors=True)
