"""A bigram model of tokens, which a trained model must beat."""

from collections.abc import Iterable, Iterator

import numpy as np

from pipeline.steps.tokens.shards import prefixes
from pipeline.store.keys import TRAIN, VALIDATION
from pipeline.store.manifest import Version
from trainer.data.shards import TokenStream

VERSION = "checks-1"
MOST_TOKENS = {TRAIN: 50_000_000, VALIDATION: 10_000_000}  # of each corpus
BLOCK_TOKENS = 8_000_000
PRIORS = (1.0, 10.0, 100.0, 1000.0)


def of_shards(shards: Version, vocab_size: int) -> dict[str, float] | None:
    """The loss of the bigram model and how many held-out tokens it predicts, of at most MOST_TOKENS; None if
    no tokens are held out. Counted once for each version.
    """
    made_from = [VERSION, vocab_size, MOST_TOKENS]
    return shards.report("bigram", made_from, lambda: _counted(shards, vocab_size))


def of_corpora(shards: Iterable[Version], vocab_size: int) -> float | None:
    """The mean loss over the held-out tokens of several corpora, each by a bigram model of its own."""
    counted = [found for one in shards if (found := of_shards(one, vocab_size)) is not None]
    tokens = sum(found["tokens"] for found in counted)
    return sum(found["loss"] * found["tokens"] for found in counted) / tokens if tokens else None


def _counted(version: Version, vocab_size: int) -> dict[str, float] | None:
    held_out, trained_on = (TokenStream(prefixes(version, split)) for split in (VALIDATION, TRAIN))
    size = min(held_out.num_tokens, MOST_TOKENS[VALIDATION])
    if size < 2 or not trained_on.num_tokens:
        return None
    return {"loss": loss(_blocks(trained_on), held_out.window(0, size), vocab_size), "tokens": size - 1}


def _blocks(stream: TokenStream) -> Iterator[np.ndarray]:
    """Blocks of tokens. Each begins with the last token of the one before, so that no pair is lost."""
    until = min(stream.num_tokens, MOST_TOKENS[TRAIN])
    for start in range(0, until, BLOCK_TOKENS):
        yield stream.window(start, min(BLOCK_TOKENS + 1, until - start))


def loss(train: Iterable[np.ndarray], held_out: np.ndarray, vocab_size: int) -> float:
    """Nats per token of `held_out` (ids [n], n > 1, the first not predicted) by pairs counted in the blocks
    of `train`.

    p(b | a) = (c(ab) + k p(b)) / (c(a) + k), p(b) with one added to each count (MacKay and Peto 1995), for
    the best k of PRIORS. Only pairs that `held_out` has are counted: memory follows its size and the
    vocabulary's, not that of `train`. About 10 M tokens/s.
    """
    pairs, occurrences = np.unique(_pairs(held_out), return_counts=True)
    counted = np.zeros(len(pairs), np.int64)
    tokens = np.zeros(vocab_size, np.int64)
    for block in train:
        tokens += np.bincount(block, minlength=vocab_size)
        found, times = np.unique(_pairs(block), return_counts=True)
        place = np.minimum(np.searchsorted(pairs, found), len(pairs) - 1)
        same = pairs[place] == found
        counted[place[same]] += times[same]
    first = (pairs >> np.uint64(32)).astype(np.int64)
    second = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
    expected = (tokens[second] + 1) / (tokens.sum() + vocab_size)
    return min(
        -float(occurrences @ np.log((counted + k * expected) / (tokens[first] + k))) for k in PRIORS
    ) / int(occurrences.sum())


def _pairs(tokens: np.ndarray) -> np.ndarray:
    ids = tokens.astype(np.uint64)
    return (ids[:-1] << np.uint64(32)) | ids[1:]
