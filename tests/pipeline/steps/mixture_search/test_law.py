"""The law of mixtures: it finds the dependence that made the losses, and says how well."""

import numpy as np
import pytest

from pipeline.steps.mixture_search.law import (
    LEAST_SHARE,
    Array,
    Law,
    check,
    fitted,
    log_linear,
    mixtures,
    proposed,
    rank_correlation,
)
from pipeline.store.errors import PipelineError

NAMES = ("books", "web", "code")
PROPORTIONS = np.array([0.7, 0.25, 0.05])
NO_LIMIT = np.ones(3)


def loss(shares: Array) -> Array:
    """Each corpus is learned with a power of its share, as in Ye et al. 2024; least at equal shares."""
    return 2 + (shares + 0.01) ** -0.3 @ np.full(3, 0.5)


def runs(number: int, noise: float = 0.002) -> tuple[Array, Array]:
    shares = mixtures(PROPORTIONS, number, seed=1)
    return shares, loss(shares) * np.exp(np.random.default_rng(2).normal(0, noise, number))


def test_the_first_run_has_the_proportions_and_all_shares_can_be_trained() -> None:
    shares = mixtures(PROPORTIONS, 24, seed=0)
    assert shares.shape == (24, 3)
    assert shares[0] == pytest.approx(PROPORTIONS)
    assert shares.sum(1) == pytest.approx(np.ones(24))
    assert shares.min() >= 0.9 * LEAST_SHARE
    assert np.array_equal(shares, mixtures(PROPORTIONS, 24, seed=0))
    assert shares.std(0).min() > 0.05  # they differ enough to learn from


def test_the_log_linear_law_ranks_mixtures_that_it_has_not_seen() -> None:
    shares, losses = runs(24)
    unseen = mixtures(PROPORTIONS, 500, seed=9)
    predicted = np.exp(log_linear(shares, np.log(losses))(unseen))
    assert rank_correlation(predicted, loss(unseen)) > 0.95
    assert np.median(np.abs(predicted / loss(unseen) - 1)) < 0.02


def test_the_proposal_is_near_the_best_mixture_and_within_its_limits() -> None:
    pytest.importorskip("lightgbm")
    law = fitted(*runs(48), bootstraps=10, seed=0)
    assert law.rank > 0.9
    assert law.errors[law.name] == min(law.errors.values())
    found = proposed(law, NAMES, PROPORTIONS, NO_LIMIT, seed=0)
    best = np.array(list(found.shares.values()))
    assert best == pytest.approx([1 / 3] * 3, abs=0.12)
    assert loss(best) < loss(PROPORTIONS)
    assert all(found.low[name] <= found.shares[name] <= found.high[name] for name in NAMES)
    gain, low, high = found.gain
    assert 0 < low <= gain <= high
    assert low <= 1 - loss(best) / loss(PROPORTIONS) <= high * 1.2
    assert found.edge == []
    limited = proposed(law, NAMES, PROPORTIONS, np.array([1, 1, 0.1]), seed=0)
    assert limited.shares["code"] <= 0.1
    assert limited.edge == ["code"]
    assert sum(limited.shares.values()) == pytest.approx(1, abs=1e-3)


def test_an_interval_holds_the_proposal_also_where_almost_all_fits_reach_the_limit() -> None:
    steps = tuple(lambda points, at=at: -np.minimum(points[:, 0], at) for at in [0.4, *[1.0] * 60])
    found = proposed(Law("", {}, 1.0, steps), NAMES, PROPORTIONS, np.array([0.8, 1, 1]), seed=0)
    assert found.low["books"] <= found.shares["books"] <= found.high["books"]
    assert found.edge == ["books"]


def test_no_law_is_fitted_to_noise_or_to_runs_that_have_learned_nothing() -> None:
    chance = np.random.default_rng(3)
    seeds, apart = chance.normal(3, 0.002, 3), chance.normal(3, 0.05, 24)
    check(apart, seeds, bigrams=3.1)
    with pytest.raises(PipelineError, match=r"best loss, 2\.\d+, is not below the 2\.500 of a bigram model"):
        check(apart, seeds, bigrams=2.5)
    with pytest.raises(PipelineError, match=r"the mixtures are not distinguishable: .* those of seeds"):
        check(chance.normal(3, 0.002, 24), seeds, bigrams=3.1)


def test_limits_without_room_are_refused() -> None:
    pytest.importorskip("lightgbm")
    law = fitted(*runs(6), bootstraps=1, seed=0)
    with pytest.raises(PipelineError, match="max_epochs rules out almost every mixture"):
        proposed(law, NAMES, PROPORTIONS, np.array([0.1, 0.1, 0.1]), seed=0)
