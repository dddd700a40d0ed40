"""Random mixtures round given proportions, and the mixture of least loss under a law."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.steps.mixture_search.law import Law, LawError

Array = NDArray[np.float64]

CONCENTRATIONS = (0.5, 4.0)  # times the number of corpora: from far apart to close to the proportions
LEAST = 0.002  # a share that the order of samples can still give
CANDIDATES = 20_000
BEST = 100  # candidates whose mean is proposed, as in RegMix
INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class Proposal:
    """The proposed share of each corpus with its 95% interval, and the losses that the law predicts there and
    at the proportions.
    """

    shares: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]
    loss: float
    loss_of_proportions: float


def mixtures(proportions: Array, number: int, seed: int) -> Array:
    """[number, corpora] shares: the proportions, then draws from Dirichlet distributions round them, or round
    a point between them and equal shares. Without such points hardly a draw would give a small corpus much.
    """
    random = np.random.default_rng(seed)
    low, high = np.log(CONCENTRATIONS)
    concentration = len(proportions) * np.exp(random.uniform(low, high, number))
    centres = np.maximum(proportions, LEAST) ** random.uniform(0, 1, (number, 1))
    centres *= concentration[:, None] / centres.sum(1, keepdims=True)
    drawn = np.stack([random.dirichlet(centre) for centre in centres])
    drawn[0] = proportions
    drawn = np.maximum(drawn, LEAST)
    return drawn / drawn.sum(1, keepdims=True)


def proposed(law: Law, names: Sequence[str], proportions: Array, most: Array, seed: int) -> Proposal:
    """The mixture of least loss among random ones of which no corpus has a share above `most`.

    Each bootstrapped fit names its best; the proposal is their mean, the interval their spread. Raises
    LawError when `most` leaves no room.
    """
    candidates = mixtures(proportions, CANDIDATES, seed)
    candidates = candidates[(candidates <= most).all(1)]
    if len(candidates) < BEST:
        raise LawError("mixture.max_epochs leaves hardly a mixture to choose from: raise it, or add text")
    best = np.stack([candidates[np.argsort(fit(candidates))[:BEST]].mean(0) for fit in law.bootstrapped])
    shares, (low, high) = best.mean(0), np.percentile(best, INTERVAL, axis=0)
    losses = law.predict(np.stack([shares, proportions]))
    named = [dict(zip(names, row.round(4).tolist(), strict=True)) for row in (shares, low, high)]
    return Proposal(named[0], named[1], named[2], float(losses[0]), float(losses[1]))
