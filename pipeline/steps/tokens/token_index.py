"""Token shards -> token_index/<corpus>: where each run of tokens occurs in the training text of a corpus. And
the search for runs of token ids in it.

For each train shard a file of suffix arrays, `<u4`, end to end: one for each block of whole documents,
relative to the block's first token. Where blocks begin follows from the lengths of the documents.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from pipeline.recipe.recipe import Recipe
from pipeline.stages import suffixes
from pipeline.steps.stage import CorpusStage, Page
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import TRAIN, Key
from pipeline.store.manifest import File, Part, Version
from pipeline.store.parts import PartTask, derive
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.data.memmap import map_file
from trainer.data.shards import Shard, bin_path
from trainer.system.durable import atomic_file

VERSION = "token-index-1"
ENTRY = np.dtype("<u4")
SLOWER = 10  # a byte takes so many times as long as in stages that read text
TOKENS_PER_SECOND = 2_000_000  # of one core


@dataclass(frozen=True)
class TokenIndex(CorpusStage):
    """The index of a corpus's token shards. No lineage has it, since no data is made from it."""

    name = keys.TOKEN_INDEX
    version = VERSION
    page = Page(
        "Where each run of tokens occurs in the training text of `{corpus}`, so that `python -m pipeline "
        "trace` finds the documents that hold a text.",
        kinds=("memmap",),
        group="token_shards",
        job="pretrain",
        numbers={"bytes": "bytes"},
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus)] if recipe.token_index else []

    @property
    def inputs(self) -> Sequence[Key]:
        return [keys.token_shards(self.corpus)]

    def work(self, store: Store) -> Work:
        return work_of(store.current(keys.token_shards(self.corpus)))

    def make(self, store: Store, engine: Engine) -> Version:
        return of_shards(store, engine, store.current(keys.token_shards(self.corpus)))


def work_of(shards: Version) -> Work:
    inputs = {str(shards.key): shards.data_version}
    return Work(keys.token_index(shards.key.corpus), VERSION, {}, inputs)


def of_shards(store: Store, engine: Engine, shards: Version) -> Version:
    """The index of token shards, made again part by part as they change. Raises PipelineError."""
    work, tasks = work_of(shards), []
    for part in shards.parts:
        tables = sorted(table for table in part.files if table.startswith(f"{TRAIN}."))
        files = [part.files[table] for table in tables]
        made_from = work.part_fingerprint([file.sha256 for file in files])
        read = tuple(shards.file(part, table) for table in tables)
        tasks.append(PartTask(part.name, made_from, read, sum(file.bytes for file in files)))
    if store.existing(work) is None:
        _check_room(store, shards)
    return derive(store, engine, work, tasks, index_part, slower=SLOWER)


def _check_room(store: Store, shards: Version) -> None:
    needed, free = size(shards), shutil.disk_usage(store.root).free
    if free < needed:
        raise PipelineError(
            f"the index of corpus {shards.key.corpus} takes {needed / 1e6:,.3f} MB, but {store.root} "
            f"has {free / 1e6:,.3f} MB free: `python -m pipeline gc` lists what can be removed"
        )


def size(shards: Version) -> int:
    """The bytes of the index of token shards."""
    tokens: int = shards.counts["train_tokens"]
    return ENTRY.itemsize * tokens


def index_part(task: PartTask, directory: Path) -> Part:
    """Writes the suffix arrays of the shards of one part."""
    paths = [Path(os.fspath(file)) for file in task.inputs]  # fetched
    files = {}
    for prefix in (path.with_suffix("") for path in paths if path == bin_path(path.with_suffix(""))):
        shard, path = Shard(prefix), directory / "suffixes" / f"{prefix.name}.sa"
        with atomic_file(path) as written, written.open("wb") as file:
            for begin, end in suffixes.blocks(shard.lengths):
                file.write(suffixes.suffix_array(shard.tokens[begin:end]).astype(ENTRY, copy=False).data)
        files[prefix.name.rpartition(".")[2]] = File.of(path, directory)
    return Part(task.name, task.fingerprint, files, {"bytes": sum(file.bytes for file in files.values())})


class TokenSearch:
    """The training tokens of a corpus and their index. Positions are those in the stream of its `shards`."""

    def __init__(self, shards: Version, index: Version) -> None:
        self.shards = [Shard(prefix) for prefix in prefixes(shards, TRAIN)]
        self.num_tokens = sum(shard.num_tokens for shard in self.shards)
        found = {path.stem: path for path in index.opened()}
        self._blocks: list[tuple[np.ndarray, np.ndarray, int]] = []  # tokens, suffixes, position of the first
        position = 0
        for shard in self.shards:
            order = map_file(found[shard.prefix.name], ENTRY)
            for begin, end in suffixes.blocks(shard.lengths):
                self._blocks.append((shard.tokens[begin:end], order[begin:end], position + begin))
            position += shard.num_tokens

    def runs(self, ids: np.ndarray, least: int) -> np.ndarray:
        """For each of `ids` [n], how many ids from it on occur in one document in this order, int64 [n]. The
        number is 0 where fewer than `least` do, and may be 0 where a longer run begins earlier.
        """
        found, least = np.zeros(len(ids), np.int64), min(least, len(ids) + 1)
        for tokens, order, _ in self._blocks:
            np.maximum(
                found, suffixes.maximal_runs(tokens, order, ids.astype(tokens.dtype), least), out=found
            )
        return found

    def count(self, ids: np.ndarray) -> int:
        """How often a run of ids occurs."""
        return sum(len(found) for found, _ in self._occurrences(ids))

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Where a run of ids occurs, ascending, int64."""
        found = [order.astype(np.int64) + first for order, first in self._occurrences(ids)]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *found]))

    def _occurrences(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        for tokens, order, position in self._blocks:
            first, end = suffixes.occurrences(tokens, order, ids.astype(tokens.dtype))
            yield order[first:end], position
