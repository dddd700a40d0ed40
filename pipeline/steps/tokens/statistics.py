"""What is in token shards: sizes, lengths of documents, and how often each id occurs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.data.shards import TokenStream

SAMPLED_TOKENS = 1 << 23
BLOCK_TOKENS = 1 << 16
LONGEST_COUNTED = 1 << 20  # tokens; a median above it is reported as this


@dataclass(frozen=True)
class Statistics:
    """`shortest`, `median` and `longest` in tokens; `occurrences` by id in `sampled` tokens, evenly spread
    over the shards.
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
            found = np.bincount(np.minimum(lengths, LONGEST_COUNTED))
            counted[: len(found)] += found
            shortest, longest = min(shortest, int(lengths.min())), max(longest, int(lengths.max()))
    documents = int(counted.sum())
    median = int(np.searchsorted(np.cumsum(counted), (documents + 1) // 2))
    occurrences, sampled = _sample(stream)
    dtype = "/".join(sorted({shard.dtype.name for shard in stream.shards}))
    return Statistics(
        len(stream.shards),
        documents,
        stream.num_tokens,
        dtype,
        min(shortest, longest),
        median,
        longest,
        sampled,
        occurrences,
    )


def _sample(stream: TokenStream) -> tuple[np.ndarray, int]:
    blocks = -(-stream.num_tokens // BLOCK_TOKENS)
    taken = np.unique(
        np.linspace(0, max(blocks - 1, 0), min(blocks, SAMPLED_TOKENS // BLOCK_TOKENS)).astype(np.int64)
    )
    occurrences, sampled = np.zeros(0, np.int64), 0
    for block in taken.tolist():
        start = block * BLOCK_TOKENS
        tokens = stream.window(start, min(BLOCK_TOKENS, stream.num_tokens - start))
        found = np.bincount(tokens, minlength=len(occurrences))
        found[: len(occurrences)] += occurrences
        occurrences, sampled = found, sampled + len(tokens)
    return occurrences, sampled
