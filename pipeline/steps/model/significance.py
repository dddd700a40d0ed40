"""Whether two arms, each trained with several seeds, differ on the same texts.

Bits y of arm a, seed s and document d are arm + document + (arm x document) + (seed of an arm) + a rest, with
seeds and documents drawn at random: seeds and documents are crossed, and both count. The variance of the
difference of the arms' means is estimated from its mean squares (Searle, Casella and McCulloch 1992,
"Variance Components", chapter 4): that of the means over seeds, which are independent between arms, plus that
of the differences of documents, which are paired, less the rest, which both hold. Documents enter a text's
bits per byte by the ratio estimator, whose variance is that of the jackknife (Cochran 1977, sections 6.13 and
6.17). Degrees of freedom are Satterthwaite's (1946), which without documents is Welch's t-test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ALPHA, POWER = 0.05, 0.8
LOOKS = (3, 6, 12, 24, 48)  # a verdict is reached at these numbers of seeds
SPENT = 0.6  # of what is left of ALPHA, at each look
BETTER, WORSE, ALIKE, UNDECIDED = "better", "worse", "not distinguishable", "no verdict yet"
# With fewer documents, or sources, the variance between them is not known: arms that are alike were called
# different in up to half of the cases.
FEWEST, UNSURE = 5, "cannot tell"


@dataclass(frozen=True)
class Text:
    """What two arms need on one text: `ours` and `theirs` in bits, float64 [seeds, documents], and the bytes
    of each document in `sizes`, float64 [documents].
    """

    ours: Array
    theirs: Array
    sizes: Array

    @property
    def bytes(self) -> float:
        return float(self.sizes.sum())


@dataclass(frozen=True)
class Difference:
    """Bits per byte of theirs less ours. `low` and `high` enclose it, `detectable` is the smallest difference
    that would have been found with probability POWER. `seeds_variance` and `documents_variance` add up to
    the squared standard error, which has `freedom` degrees of freedom.
    """

    value: float
    low: float
    high: float
    detectable: float
    seeds_variance: float
    documents_variance: float
    freedom: float

    @property
    def word(self) -> str:
        return BETTER if self.high < 0 else WORSE if self.low > 0 else ALIKE


def alpha(seeds: int, comparisons: int) -> float:
    """The level of one of several comparisons at this number of seeds: over all of them and all looks, some
    pair that is alike is called different with a probability of at most ALPHA (Bonferroni).
    """
    look = sum(seeds >= needed for needed in LOOKS[1:])
    return float(ALPHA * SPENT * (1 - SPENT) ** look) / comparisons


def difference(texts: Sequence[Text], level: float) -> Difference:
    """The mean of the differences on all texts, which count alike. Every arm has at least two seeds."""
    arms = [
        np.mean([getattr(text, arm).sum(1) / text.bytes for text in texts], 0) for arm in ("ours", "theirs")
    ]
    value = float(arms[1].mean() - arms[0].mean())
    terms: list[tuple[float, float]] = [(float(arm.var(ddof=1)) / len(arm), len(arm) - 1) for arm in arms]
    seeds_variance = sum(variance for variance, _ in terms)
    of_texts = [_of_documents(text) / len(texts) ** 2 for text in texts]
    documents_variance = max(0.0, sum(of_texts))
    # A long document counts as several of the others: so many in all.
    terms += [
        (max(0.0, variance), text.bytes**2 / float((text.sizes**2).sum()) - 1)
        for variance, text in zip(of_texts, texts, strict=True)
    ]
    error = math.sqrt(seeds_variance + documents_variance)
    if error == 0:
        return Difference(value, value, value, 0.0, 0.0, 0.0, 0.0)
    # Less than one, of a text that is mostly one document, has no quantiles worth computing.
    freedom = max(1.0, error**4 / sum(variance**2 / df for variance, df in terms if df > 0))
    half, detectable = (factor * error for factor in _factors(level, freedom))
    low, high = value - half, value + half
    return Difference(value, low, high, detectable, seeds_variance, documents_variance, freedom)


def _of_documents(text: Text) -> float:
    """The variance of a text's difference that the choice of its documents adds; below 0 by chance."""
    number = len(text.sizes)
    if number < 2:
        return 0.0
    between = _centered(text.theirs.mean(0) - text.ours.mean(0), text.sizes)
    found = float((between**2).sum())
    for arm in (text.ours, text.theirs):
        rest = np.stack([_centered(row, text.sizes) for row in arm - arm.mean(0)])
        found -= float((rest**2).sum()) / (len(arm) * (len(arm) - 1))
    return found * (number - 1) / number / text.bytes**2


def _centered(bits: Array, sizes: Array) -> Array:
    """What each document changes, as if the text were without it."""
    return (bits - sizes * (bits.sum() / sizes.sum())) / (1 - sizes / sizes.sum())


def _factors(level: float, freedom: float) -> tuple[float, float]:
    """Half the width of an interval, and what is found with probability POWER, in standard errors: of the
    noncentral t distribution, since the standard error is itself estimated.
    """
    from scipy.special import nctdtrinc, stdtrit

    half = float(stdtrit(freedom, 1 - level / 2))
    return half, float(nctdtrinc(freedom, 1 - POWER, half))


def seeds_needed(
    measured: Difference, seeds: int, comparisons: int, wanted: float, scale: int = 1
) -> int | None:
    """The smallest number of seeds in LOOKS, more than `seeds` on the same text, that would find a difference
    of `wanted` with probability POWER on `scale` times the documents; None where no number would do.
    """
    for more in (number for number in LOOKS if number > seeds or (number == seeds and scale > 1)):
        error = math.sqrt(measured.seeds_variance * seeds / more + measured.documents_variance / scale)
        freedom = measured.freedom * (more - 1) / (seeds - 1)
        if _factors(alpha(more, comparisons), freedom)[1] * error <= wanted:
            return more
    return None
