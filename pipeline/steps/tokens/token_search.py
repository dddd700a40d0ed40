"""Looks for runs of token ids in the training text of a corpus, by its index."""

from collections.abc import Iterator

import numpy as np

from pipeline.stages import suffixes
from pipeline.steps.tokens.shards import prefixes
from pipeline.steps.tokens.token_index import ENTRY
from pipeline.store.keys import TRAIN
from pipeline.store.manifest import Version
from trainer.data.memmap import map_file
from trainer.data.shards import Shard


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
