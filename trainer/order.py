"""Which window is sample i of a run: a pure function of (seed, corpora, i), so that any position is reached at once, on any number of processes.

Corpora take turns by largest sampling error, in a fixed cycle. Within a corpus, each epoch is a keyed permutation of its windows: a Feistel
network over the next power of four, walked until it lands inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
"""

import hashlib
from collections.abc import Sequence

import numpy as np

CYCLE = 4096
ROUNDS = 4


def permute(index: np.ndarray, size: int, key: bytes) -> np.ndarray:
    """The images of `index` (int64, each in 0..size - 1) under the permutation of 0..size - 1 that `key` names. No table, about 1 µs each."""
    return _walk(index, size, key, backwards=False)


def unpermute(images: np.ndarray, size: int, key: bytes) -> np.ndarray:
    """The index of each image: the inverse of `permute`."""
    return _walk(images, size, key, backwards=True)


def _walk(numbers: np.ndarray, size: int, key: bytes, backwards: bool) -> np.ndarray:
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    keys = np.frombuffer(hashlib.blake2b(key, digest_size=8 * ROUNDS).digest(), dtype="<u8")
    if backwards:
        keys = keys[::-1]
    result = numbers.astype(np.uint64)
    outside = np.arange(len(result))
    while len(outside):
        values = result[outside]
        left, right = values >> shift, values & mask
        for round_key in keys:
            if backwards:
                left, right = right ^ (_mix(left ^ round_key) & mask), left
            else:
                left, right = right, left ^ (_mix(right ^ round_key) & mask)
        result[outside] = (left << shift) | right
        outside = outside[result[outside] >= size]
    return result.astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mixture_cycle(weights: Sequence[float]) -> np.ndarray:
    """CYCLE turns, each given to the corpus that is furthest behind its share; shares are rounded to 1/CYCLE, at least one turn each."""
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights) * CYCLE
    quotas = np.maximum(1, np.floor(shares)).astype(np.int64)
    while quotas.sum() != CYCLE:
        behind = shares - quotas
        if quotas.sum() < CYCLE:
            quotas[np.argmax(behind)] += 1
        else:
            quotas[np.argmin(np.where(quotas > 1, behind, np.inf))] -= 1
    turns = np.empty(CYCLE, dtype=np.int64)
    error = np.zeros(len(quotas), dtype=np.int64)
    for i in range(CYCLE):
        error += quotas
        turns[i] = np.argmax(error)
        error[turns[i]] -= CYCLE
    return turns


class SampleOrder:
    """The order of a run's samples over corpora of `sizes` windows, mixed by `weights`. Its whole state is the number of samples consumed."""

    def __init__(self, seed: int, names: Sequence[str], sizes: Sequence[int], weights: Sequence[float]) -> None:
        self.seed, self.names, self.sizes = seed, list(names), list(sizes)
        self._turns = mixture_cycle(weights)
        taken = np.zeros((CYCLE + 1, len(sizes)), dtype=np.int64)
        taken[1:] = np.cumsum(self._turns[:, None] == np.arange(len(sizes)), axis=0)
        self._taken = taken

    def consumed(self, samples: int) -> np.ndarray:
        """How many of the first `samples` samples come from each corpus, int64 [corpora]."""
        cycles, rest = divmod(samples, CYCLE)
        return cycles * self._taken[CYCLE] + self._taken[rest]

    def windows(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Corpus and window number of samples `start` to `start + count - 1`, both int64 [count]."""
        samples = np.arange(start, start + count)
        corpora = self._turns[samples % CYCLE]
        within = (samples // CYCLE) * self._taken[CYCLE, corpora] + self._taken[samples % CYCLE, corpora]
        windows = np.empty(count, dtype=np.int64)
        for corpus in np.unique(corpora):
            size = self.sizes[corpus]
            mine = corpora == corpus
            for epoch in np.unique(within[mine] // size):
                chosen = mine & (within // size == epoch)
                windows[chosen] = permute(within[chosen] % size, size, self._key(corpus, epoch))
        return corpora, windows

    def times_seen(self, corpus: int, windows: np.ndarray, samples: int) -> np.ndarray:
        """How often each of `windows` (int64 [n]) of a corpus is among the first `samples` samples, int64 [n]."""
        epochs, rest = divmod(int(self.consumed(samples)[corpus]), self.sizes[corpus])
        return epochs + (unpermute(windows, self.sizes[corpus], self._key(corpus, epochs)) < rest)

    def _key(self, corpus: int, epoch: int) -> bytes:
        return f"{self.seed}/{self.names[corpus]}/{epoch}".encode()
