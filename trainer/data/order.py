"""The order of samples: the window of sample i is a pure function of (seed, corpora, stages, i), so that any
position is reached at once, on any number of processes.

Corpora alternate in a fixed cycle, each as evenly as its share allows. Within a corpus, each epoch is a
keyed permutation of its windows: a Feistel network over the next power of four, repeated until the result is
in range (cycle walking; Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
"""

import functools
import hashlib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.config import TrainingConfig
from trainer.system.errors import TrainerError

# Turns after which a mixture repeats itself, and the most where a share is too small for that many.
CYCLE, LONGEST_CYCLE = 4096, 1 << 20
# By how much of itself a share may be rounded, before the cycle grows.
LARGEST_ERROR = 0.05
ROUNDS = 4
NEVER = 1 << 40  # windows, more than any run reads


def permute(numbers: np.ndarray, size: int, key: bytes, backwards: bool = False) -> np.ndarray:
    """Permutes `numbers` (int64, each in 0..size - 1) by the permutation of 0..size - 1 that `key` selects,
    or `backwards` by its inverse. Needs no table; about 1 µs per element.
    """
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
                left, right = right ^ (mix(left ^ round_key) & mask), left
            else:
                left, right = right, left ^ (mix(right ^ round_key) & mask)
        result[outside] = (left << shift) | right
        outside = outside[result[outside] >= size]
    return result.astype(np.int64)


def mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shares_in_turns(weights: Mapping[str, float]) -> dict[str, float]:
    """The share that each corpus gets of a mixture by `weights`: whole turns of the cycle.

    Raises TrainerError for a corpus whose share the longest cycle would round by more than LARGEST_ERROR.
    """
    turns = mixture_turns(tuple(weights.values()))
    length, total = int(turns.sum()), sum(weights.values())
    shares = dict(zip(weights, (turns / length).tolist(), strict=True))
    for name, share in shares.items():
        wanted = weights[name] / total
        if abs(share - wanted) > LARGEST_ERROR * wanted and length >= LONGEST_CYCLE:
            raise TrainerError(
                f"corpus {name!r} has {wanted:.1g} of the mixture, too little to be read that often in "
                f"{LONGEST_CYCLE:,} samples: leave the corpus out, or give it a larger weight"
            )
    return shares


@functools.lru_cache(maxsize=64)
def mixture_turns(weights: tuple[float, ...]) -> np.ndarray:
    """How many turns each corpus has in a cycle, int64 [corpora]; a share above 0 has at least one.

    The cycle has CYCLE turns or, where rounding to them would move a share by more than LARGEST_ERROR, the
    next power of two where it does not, up to LONGEST_CYCLE.
    """
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    mixed, length = shares > 0, CYCLE
    while True:
        if np.count_nonzero(mixed) <= length:
            turns = _rounded(shares * length)
            errors = np.abs(turns[mixed] / (shares[mixed] * length) - 1)
            if length >= LONGEST_CYCLE or errors.max() <= LARGEST_ERROR:
                return turns
        length *= 2


def _rounded(shares: np.ndarray) -> np.ndarray:
    """The whole numbers nearest to `shares` with the same sum, each at least 1 where the share is above 0."""
    length = round(shares.sum())
    quotas = np.maximum(shares > 0, np.floor(shares)).astype(np.int64)
    while quotas.sum() != length:
        behind = shares - quotas
        if quotas.sum() < length:
            quotas[np.argmax(behind)] += 1
        else:
            quotas[np.argmin(np.where(quotas > 1, behind, np.inf))] -= 1
    return quotas


@functools.lru_cache(maxsize=64)
def mixture_cycle(weights: tuple[float, ...]) -> np.ndarray:
    """The corpus of each turn of the cycle, int64.

    In a cycle of CYCLE turns it is always the corpus that is furthest behind its share. A longer cycle, which
    would take minutes to plan so, gives each corpus its turns at equal distances.
    """
    quotas = mixture_turns(weights)
    length = int(quotas.sum())
    if length > CYCLE:
        corpora = np.repeat(np.arange(len(quotas)), quotas)
        numbers = np.arange(length) - np.repeat(np.cumsum(quotas) - quotas, quotas)
        return corpora[np.argsort((numbers + 0.5) / quotas[corpora], kind="stable")]
    turns = np.empty(length, dtype=np.int64)
    error = np.zeros(len(quotas), dtype=np.int64)
    for i in range(length):
        error += quotas
        turns[i] = np.argmax(error)
        error[turns[i]] -= length
    return turns


class MixtureCycle:
    """The corpus of each sample of a mixture by `weights`. Needs 16 bytes for each turn of the cycle."""

    def __init__(self, weights: tuple[float, ...]) -> None:
        self._turns, self._cycle = mixture_turns(weights), mixture_cycle(weights)
        self.length = len(self._cycle)  # turns after which the cycle begins again
        # How many turns the corpus of each turn had before it in the cycle.
        self._before = np.empty(self.length, dtype=np.int64)
        firsts = np.repeat(np.cumsum(self._turns) - self._turns, self._turns)
        self._before[np.argsort(self._cycle, kind="stable")] = np.arange(self.length) - firsts

    def counts(self, samples: int) -> np.ndarray:
        """How many of the first `samples` turns belong to each corpus, int64 [corpora]."""
        cycles, rest = divmod(samples, self.length)
        return cycles * self._turns + np.bincount(self._cycle[:rest], minlength=len(self._turns))

    def at(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The corpus of each of `samples`, and how many turns it had before; both int64 [samples]."""
        cycles, rest = np.divmod(samples, self.length)
        corpora = self._cycle[rest]
        return corpora, cycles * self._turns[corpora] + self._before[rest]

    def samples(self, corpus: int, turns: np.ndarray) -> np.ndarray:
        """The inverse of `at`: the samples of these turns of a corpus, int64 [turns]."""
        cycles, rest = np.divmod(turns, max(self._turns[corpus], 1))
        return cycles * self.length + np.flatnonzero(self._cycle == corpus)[rest]


@dataclass(frozen=True)
class Segment:
    """Windows of `seq_len` tokens from `first_sample` on, mixed by `weights`; 0 leaves a corpus out."""

    first_sample: int
    seq_len: int
    weights: tuple[float, ...]


class SampleOrder:
    """The order of a run's samples. Its whole state is the number of samples consumed.

    An epoch of a corpus is a permutation of its windows of `seq_len` tokens; `sizes` are their counts. A
    segment of shorter windows, whose length divides `seq_len`, reads them part by part. Each segment
    continues where the previous one stopped; if its windows are longer, the rest of a window may be left out.
    With `permutes` False, the windows of a corpus have no end and are read as they are numbered.
    """

    def __init__(
        self,
        seed: int,
        names: Sequence[str],
        sizes: Sequence[int],
        *,
        seq_len: int,
        segments: Sequence[Segment],
        permutes: bool = True,
    ) -> None:
        self.seed, self.names, self.sizes, self.seq_len = seed, list(names), list(sizes), seq_len
        self._permutes = permutes
        self.part_len = math.gcd(*(segment.seq_len for segment in segments))
        # Windows of each corpus after which the run reads them all again, in the same order.
        self._again = [NEVER] * len(sizes)
        self._segments, self._cycles = list(segments), [MixtureCycle(segment.weights) for segment in segments]
        # Where each segment begins in each corpus, in tokens of its permuted windows, epochs concatenated.
        self._begins = [np.zeros(len(sizes), dtype=np.int64)]
        for number, segment in enumerate(self._segments[1:]):
            end = self._begins[-1] + self._tokens(number, segment.first_sample)
            self._begins.append(-(-end // segment.seq_len) * segment.seq_len)

    @property
    def repeats(self) -> list[int | None]:
        """The windows of each corpus after which the run reads them all again in the same order; None for a
        corpus that is read in another order each time.
        """
        return [None if again == NEVER else again for again in self._again]

    def repeat_half(self, samples: int) -> None:
        """Lets a run of so many `samples` read half as many different windows, and at most half of each
        corpus: the second half of what a corpus gives repeats the first half.
        """
        tokens = self.tokens(samples).tolist()
        self._again = [
            max(1, min(one // self.seq_len, size) // 2) for one, size in zip(tokens, self.sizes, strict=True)
        ]

    def tokens(self, samples: int) -> np.ndarray:
        """The tokens of each corpus in the first `samples` samples, int64 [corpora]."""
        return np.sum([self._tokens(number, samples) for number in range(len(self._segments))], axis=0)

    def reached(self, samples: int) -> np.ndarray:
        """The token of its permuted windows up to which the first `samples` samples read each corpus, int64
        [corpora]; 0 for a corpus that they do not read.
        """
        tokens = [self._tokens(number, samples) for number in range(len(self._segments))]
        ends = [np.where(read, begin + read, 0) for begin, read in zip(self._begins, tokens, strict=True)]
        return np.minimum(np.max(ends, axis=0), np.array(self._again) * self.seq_len)

    def _tokens(self, number: int, samples: int) -> np.ndarray:
        """The tokens of each corpus in one segment, within the first `samples` samples of the run."""
        segment = self._segments[number]
        end = (
            samples
            if number + 1 == len(self._segments)
            else min(samples, self._segments[number + 1].first_sample)
        )
        return self._cycles[number].counts(max(0, end - segment.first_sample)) * segment.seq_len

    def parts(self, corpus: int, samples: int) -> int:
        """The number from which on the first `samples` samples read none of the parts of a corpus."""
        tokens = self.sizes[corpus] * self.seq_len if self._permutes else int(self.reached(samples)[corpus])
        return tokens // self.part_len

    def windows(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The corpus and the window of samples `start` to `start + count - 1`, both int64 [count]. They must
        be in one segment.

        Windows are numbered in the segment's length: window i begins at token i times its seq_len.
        """
        number = bisect_right(self._segments, start, key=lambda segment: segment.first_sample) - 1
        segment = self._segments[number]
        length, first = segment.seq_len, start - segment.first_sample
        corpora, turns = self._cycles[number].at(np.arange(first, first + count))
        whole, part = np.divmod(self._begins[number][corpora] + turns * length, self.seq_len)
        windows = np.empty(count, dtype=np.int64)
        for corpus in np.unique(corpora):
            size = self._epoch(corpus)
            mine = corpora == corpus
            whole[mine] %= self._again[corpus]
            for epoch in np.unique(whole[mine] // size):
                chosen = mine & (whole // size == epoch)
                windows[chosen] = self._permuted(whole[chosen] % size, corpus, epoch)
        return corpora, windows * (self.seq_len // length) + part // length

    def reads(self, corpus: int, parts: np.ndarray, samples: int) -> tuple[np.ndarray, np.ndarray]:
        """When the first `samples` samples read each of `parts`, windows of `part_len` tokens of a corpus:
        the place in `parts` and the number of the sample of each reading, both int64 [readings].
        """
        windows, part = np.divmod(parts, self.seq_len // self.part_len)
        # the tokens of an epoch, or of what is repeated
        period = min(self._epoch(corpus), self._again[corpus]) * self.seq_len
        found = []
        for number, (segment, cycle) in enumerate(zip(self._segments, self._cycles, strict=True)):
            first = int(self._begins[number][corpus])
            last = first + int(self._tokens(number, samples)[corpus])
            for epoch in range(first // period, -(-last // period)):
                order = epoch if self._again[corpus] == NEVER else 0
                place = self._permuted(windows, corpus, order, backwards=True) * self.seq_len
                place += part * self.part_len
                token = epoch * period + place
                read = np.flatnonzero((place < period) & (first <= token) & (token < last))
                turns = (token[read] - first) // segment.seq_len
                found.append((read, segment.first_sample + cycle.samples(corpus, turns)))
        none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        which, when = (np.concatenate(each) for each in zip(none, *found, strict=True))
        return which, when

    def _epoch(self, corpus: int) -> int:
        """The windows of an epoch of a corpus."""
        return self.sizes[corpus] if self._permutes else NEVER

    def _permuted(self, windows: np.ndarray, corpus: int, epoch: int, backwards: bool = False) -> np.ndarray:
        if not self._permutes:
            return windows
        key = f"{self.seed}/{self.names[corpus]}/{epoch}".encode()
        return permute(windows, self.sizes[corpus], key, backwards)


def sample_order(training: TrainingConfig, weights: Mapping[str, float], sizes: Sequence[int]) -> SampleOrder:
    """The order of a run over corpora with `weights` by name and `sizes` windows of the run's seq_len."""
    segments = []
    for stage in training.curriculum.stages:
        mixed = weights if stage.weights is None else stage.weights
        shares_in_turns(mixed)
        segments.append(
            Segment(stage.first_sample, stage.seq_len, tuple(mixed.get(name, 0.0) for name in weights))
        )
    order = SampleOrder(
        training.seed,
        list(weights),
        sizes,
        seq_len=training.seq_len,
        segments=segments,
        permutes=not training.is_steady,
    )
    if training.control == "duplicates":
        order.repeat_half(training.curriculum.samples(training.steps))
    return order
