"""How the loss depends on the mixture: of several laws, all fitted to small runs, the one that best predicts
runs which it has not seen.

A log-linear law with interactions: the logarithm of the loss is quadratic in the logarithms of the shares
(Ye et al. 2024, Data Mixing Laws, take it to be linear in the shares). Gradient-boosted trees with the
settings of Liu et al. 2024 (RegMix). And the mean of both.

Under the law, the mixture of least loss among random ones is proposed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.store.errors import PipelineError
from trainer.system.errors import install

Array = NDArray[np.float64]
Prediction = Callable[[Array], Array]
Fit = Callable[[Array, Array], Prediction]

VERSION = "law-2"
OFFSET = 0.01  # keeps the logarithm of a share of 0 finite, and treats smaller shares alike
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FOLDS = 10
TREES: Mapping[str, Any] = {"learning_rate": 0.01, "num_leaves": 31, "objective": "regression"}
ROUNDS = 1000
CONCENTRATIONS = (0.5, 4.0)  # times the number of corpora: from far apart to close to the proportions
LEAST_SHARE = 0.002  # a share that the order of samples can still give
CANDIDATES = 20_000
BEST = 100  # candidates whose mean is proposed, as in RegMix
INTERVAL = (2.5, 97.5)
LEVEL = 0.95
EDGE = 0.9  # of the largest share that was tried
LEAF = 20  # least runs in a leaf, fewer where there are few runs


@dataclass(frozen=True)
class Law:
    """The law that was chosen. `errors` has for each law the root mean square error of the logarithm of the
    loss, on runs that the law was not fitted to. `rank` is Spearman's correlation between the losses of such
    runs and what the chosen law predicts for them. `bootstrapped` are fits of the law to runs drawn with
    replacement, of which `predict` is the mean.
    """

    name: str
    errors: Mapping[str, float]
    rank: float
    bootstrapped: tuple[Prediction, ...]

    def predict(self, shares: Array) -> Array:
        """The loss at [n, corpora] shares."""
        return np.exp(np.mean([fit(shares) for fit in self.bootstrapped], axis=0))


def check(losses: Array, of_seeds: Array, bigrams: float) -> None:
    """Raises PipelineError where no law can be fitted: no loss of a mixture is below that of `bigrams`, or
    they differ no more than those `of_seeds` of one mixture do (F-test of their variances).
    """
    from scipy.stats import f

    if losses.min() >= bigrams:
        raise PipelineError(
            f"the small runs have learned nothing: their best loss, {losses.min():.3f}, is not below the "
            f"{bigrams:.3f} of a bigram model. Raise mixture.search.training.max_tokens"
        )
    ratio = losses.var(ddof=1) / max(of_seeds.var(ddof=1), 1e-12)
    if ratio < f.ppf(LEVEL, len(losses) - 1, len(of_seeds) - 1):
        raise PipelineError(
            "the mixtures are not distinguishable: their losses have a standard deviation of "
            f"{losses.std(ddof=1):.4f}, those of seeds of one mixture {of_seeds.std(ddof=1):.4f}. Raise "
            "mixture.search.training.max_tokens"
        )


def fitted(shares: Array, losses: Array, bootstraps: int, seed: int) -> Law:
    """The law of [runs, corpora] shares and losses, five or more. Raises PipelineError without lightgbm."""
    logs, random = np.log(losses), np.random.default_rng(seed)
    fits: dict[str, Fit] = {"log-linear": log_linear, "trees": trees}
    held_out = {name: _held_out(fit, shares, logs, seed) for name, fit in fits.items()}
    held_out["mean of both"] = np.mean(list(held_out.values()), axis=0)
    errors = {name: float(np.sqrt(np.mean((found - logs) ** 2))) for name, found in held_out.items()}
    name = min(errors, key=errors.__getitem__)
    chosen = [fits[name]] if name in fits else list(fits.values())
    bootstrapped = []
    for _ in range(bootstraps):
        drawn = random.integers(0, len(logs), len(logs))
        bootstrapped.append(_mean([fit(shares[drawn], logs[drawn]) for fit in chosen]))
    return Law(name, errors, rank_correlation(held_out[name], logs), tuple(bootstrapped))


def _held_out(fit: Fit, shares: Array, logs: Array, seed: int) -> Array:
    """What a law says of each run when it is fitted to the runs of the other folds."""
    folds = np.random.default_rng(seed).permutation(len(logs)) % min(FOLDS, len(logs))
    found = np.empty_like(logs)
    for fold in range(folds.max() + 1):
        here = folds == fold
        found[here] = fit(shares[~here], logs[~here])(shares[here])
    return found


def _mean(fits: list[Prediction]) -> Prediction:
    return lambda shares: np.mean([fit(shares) for fit in fits], axis=0)


def log_linear(shares: Array, logs: Array) -> Prediction:
    """Ridge regression on shares, their logarithms and products; the penalty of least leave-one-out error."""
    features = _features(shares)
    center, scale = features.mean(0), features.std(0) + 1e-9
    left, singular, right = np.linalg.svd((features - center) / scale, full_matrices=False)
    middle = logs.mean()
    projected = left.T @ (logs - middle)
    best = min(PENALTIES, key=lambda penalty: _leave_one_out(left, singular, logs - middle, penalty))
    coefficients = right.T @ (singular / (singular**2 + best) * projected)
    return lambda points: (_features(points) - center) / scale @ coefficients + middle


def _features(shares: Array) -> Array:
    logs = np.log(shares + OFFSET)
    first, second = np.triu_indices(shares.shape[1])
    return np.hstack([shares, logs, logs[:, first] * logs[:, second]])


def _leave_one_out(left: Array, singular: Array, values: Array, penalty: float) -> float:
    """The mean squared error of each value as predicted from all others (Golub et al. 1979)."""
    hat = (left * (singular**2 / (singular**2 + penalty))) @ left.T
    leverage = np.minimum(np.diag(hat) + 1 / len(values), 0.999)
    return float(np.mean(((values - hat @ values) / (1 - leverage)) ** 2))


def trees(shares: Array, logs: Array) -> Prediction:
    """Gradient-boosted trees. Raises PipelineError without lightgbm."""
    try:
        import lightgbm
    except ModuleNotFoundError as error:
        raise PipelineError(f"mixture.search needs the package lightgbm: run {install('mixture')}") from error
    leaf = min(LEAF, max(2, len(logs) // 10))
    settings = {**TREES, "min_data_in_leaf": leaf, "min_data_in_bin": min(3, leaf - 1)}
    settings |= {"num_threads": 1, "deterministic": True, "seed": 0, "verbosity": -1}
    model = lightgbm.train(settings, lightgbm.Dataset(shares, logs), ROUNDS)
    return lambda points: np.asarray(model.predict(points), dtype=np.float64)


def rank_correlation(ours: Array, theirs: Array) -> float:
    """Spearman's rank correlation."""
    from scipy.stats import spearmanr

    return float(spearmanr(ours, theirs).statistic)


@dataclass(frozen=True)
class Proposal:
    """The proposed share of each corpus with its 95% interval, and the losses that the law predicts for
    these shares and for the proportions. `gain` is the share of the latter loss by which the proposal lowers
    it, with its 95% interval. `edge` has the corpora whose share is as large as the limit allows.
    """

    shares: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]
    loss: float
    loss_of_proportions: float
    gain: tuple[float, float, float]
    edge: list[str]


def mixtures(proportions: Array, number: int, seed: int) -> Array:
    """[number, corpora] shares: the proportions, then draws from Dirichlet distributions round them, or round
    a point between them and equal shares. Without such points hardly a draw would give a small corpus much.
    """
    random = np.random.default_rng(seed)
    low, high = np.log(CONCENTRATIONS)
    concentration = len(proportions) * np.exp(random.uniform(low, high, number))
    centers = np.maximum(proportions, LEAST_SHARE) ** random.uniform(0, 1, (number, 1))
    centers *= concentration[:, None] / centers.sum(1, keepdims=True)
    drawn = np.stack([random.dirichlet(center) for center in centers])
    drawn[0] = proportions
    drawn = np.maximum(drawn, LEAST_SHARE)
    return drawn / drawn.sum(1, keepdims=True)


def proposed(law: Law, names: Sequence[str], proportions: Array, most: Array, seed: int) -> Proposal:
    """The mixture of least loss among random ones of which no corpus has a share above `most`.

    Each bootstrapped fit names its best; the proposal is their mean, the interval their spread. Raises
    PipelineError when `most` leaves no room.
    """
    candidates = mixtures(proportions, CANDIDATES, seed)
    candidates = candidates[(candidates <= most).all(1)]
    if len(candidates) < BEST:
        raise PipelineError("mixture.max_epochs rules out almost every mixture: raise it, or add text")
    best = np.stack([candidates[np.argsort(fit(candidates))[:BEST]].mean(0) for fit in law.bootstrapped])
    shares, (low, high) = best.mean(0), np.percentile(best, INTERVAL, axis=0)
    low, high = np.minimum(low, shares), np.maximum(high, shares)  # the mean of skewed fits lies outside
    points = np.stack([shares, proportions])
    losses = law.predict(points)
    gains = [1 - np.exp(np.subtract(*fit(points))) for fit in law.bootstrapped]
    named = [dict(zip(names, row.round(4).tolist(), strict=True)) for row in (shares, low, high)]
    return Proposal(
        named[0],
        named[1],
        named[2],
        float(losses[0]),
        float(losses[1]),
        gain=(float(1 - losses[0] / losses[1]), *np.percentile(gains, INTERVAL).tolist()),
        edge=[name for name, share, limit in zip(names, shares, most, strict=True) if share >= EDGE * limit],
    )
