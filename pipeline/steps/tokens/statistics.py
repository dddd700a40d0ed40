"""Statistics of token shards: sizes, lengths of documents, and how often each id occurs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.data.shards import TokenStream

SAMPLED_TOKENS = 1 << 23
BLOCK_TOKENS = 1 << 16
LONGEST_COUNTED = 1 << 20  # tokens; a longer median is reported as this


@dataclass(frozen=True)
class Statistics:
    """`shortest`, `median` and `longest` document in tokens; `occurrences` of each id in `sampled` tokens,
    which are evenly spread over the shards.
    """

    shards: int
    documents: int
    tokens: int
    dtype: str
    shortest: int
    median: int
    longest: int
    sampled: int
    occurrences: np.ndarray


def measure(prefixes: Sequence[Path]) -> Statistics:
    """Reads every length, and the tokens of a sample: memory does not grow with the shards. Raises
    ShardError.
    """
    stream = TokenStream(prefixes)
    counted = np.zeros(LONGEST_COUNTED + 1, np.int64)
    shortest, longest = np.iinfo(np.int32).max, 0
    for shard in stream.shards:
        lengths = shard.lengths
        if len(lengths):
            histogram = np.bincount(np.minimum(lengths, LONGEST_COUNTED))
            counted[: len(histogram)] += histogram
            shortest, longest = min(shortest, int(lengths.min())), max(longest, int(lengths.max()))
    documents = int(counted.sum())
    occurrences, sampled = _sample(stream)
    return Statistics(
        shards=len(stream.shards),
        documents=documents,
        tokens=stream.num_tokens,
        dtype="/".join(sorted({shard.dtype.name for shard in stream.shards})),
        shortest=min(shortest, longest),
        median=int(np.searchsorted(np.cumsum(counted), (documents + 1) // 2)),
        longest=longest,
        sampled=sampled,
        occurrences=occurrences,
    )


def _sample(stream: TokenStream) -> tuple[np.ndarray, int]:
    blocks = -(-stream.num_tokens // BLOCK_TOKENS)
    spread = np.linspace(0, max(blocks - 1, 0), min(blocks, SAMPLED_TOKENS // BLOCK_TOKENS))
    occurrences, sampled = np.zeros(0, np.int64), 0
    for block in np.unique(spread.astype(np.int64)).tolist():
        start = block * BLOCK_TOKENS
        tokens = stream.window(start, min(BLOCK_TOKENS, stream.num_tokens - start))
        counted = np.bincount(tokens, minlength=len(occurrences))
        counted[: len(occurrences)] += occurrences
        occurrences, sampled = counted, sampled + len(tokens)
    return occurrences, sampled
