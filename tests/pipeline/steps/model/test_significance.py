"""Verdicts: the intervals of closed forms, and right rates where seeds and documents both count."""

import numpy as np
import pytest
from scipy import stats

from pipeline.steps.model.significance import (
    ALIKE,
    ALPHA,
    BETTER,
    LOOKS,
    WORSE,
    Array,
    Difference,
    Text,
    alpha,
    difference,
    seeds_needed,
)

ENOUGH = 600


def drawn(
    chance: np.random.Generator,
    apart: float = 0.0,
    of_arm: float = 0.0,
    seeds: int = 3,
    documents: int = 60,
    longest: float = 4_000,
) -> Text:
    """Two arms with an effect of each seed, and of each document on an arm and on a run."""
    hard, sizes = chance.normal(2, 0.5, documents), chance.integers(500, 4000, documents).astype(float)
    sizes[0] = longest

    def arm(more: float) -> Array:
        own = hard + more + chance.normal(0, of_arm, documents)
        runs = chance.normal(0, 0.002, (seeds, 1)) + chance.normal(0, 0.02, (seeds, documents))
        return (own + runs) * sizes

    return Text(arm(0.0), arm(apart), sizes)


def test_without_documents_it_is_welchs_test() -> None:
    chance = np.random.default_rng(0)
    ours, theirs = chance.normal(2, 0.01, (4, 1)), chance.normal(2.01, 0.03, (3, 1))
    found = difference([Text(ours, theirs, np.ones(1))], 0.05)
    interval = stats.ttest_ind(theirs[:, 0], ours[:, 0], equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_without_a_spread_over_seeds_it_is_a_paired_test_over_documents() -> None:
    chance = np.random.default_rng(1)
    ours, theirs = chance.normal(2, 0.5, 40), chance.normal(2.1, 0.5, 40)
    found = difference([Text(np.stack([ours] * 3), np.stack([theirs] * 3), np.ones(40))], 0.05)
    interval = stats.ttest_rel(theirs, ours).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_documents_of_unequal_size_have_the_interval_of_a_bootstrap() -> None:
    text = drawn(np.random.default_rng(2), of_arm=0.1, documents=300)
    ours, theirs = text.ours.mean(0), text.theirs.mean(0)
    found = difference([Text(np.stack([ours] * 2), np.stack([theirs] * 2), text.sizes)], 0.05)

    def statistic(ours: Array, theirs: Array, sizes: Array, axis: int) -> Array:
        return (theirs - ours).sum(axis) / sizes.sum(axis)

    by_lot = stats.bootstrap((ours, theirs, text.sizes), statistic, paired=True, random_state=0)
    interval = by_lot.confidence_interval
    assert found.high - found.low == pytest.approx(interval.high - interval.low, rel=0.05)
    assert found.value == pytest.approx(statistic(ours, theirs, text.sizes, 0))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"of_arm": 0.02},
        {"seeds": 6},
        {"seeds": 2, "of_arm": 0.02},
        {"documents": 1},
        {"of_arm": 0.05, "documents": 10, "longest": 180_000},
        {"of_arm": 0.05, "longest": 60_000},
    ],
)
def test_arms_that_are_alike_are_seldom_called_different(settings: dict[str, float]) -> None:
    chance = np.random.default_rng(3)
    words = [difference([drawn(chance, **settings)], 0.05).word for _ in range(ENOUGH)]  # type: ignore[arg-type]
    assert stats.binomtest(sum(word != ALIKE for word in words), ENOUGH, 0.05, "greater").pvalue > 0.01


def test_several_texts_count_alike_and_their_documents_apart() -> None:
    chance = np.random.default_rng(4)
    words = []
    for _ in range(ENOUGH):
        texts = [drawn(chance, of_arm=0.02), drawn(chance, of_arm=0.02, documents=20)]
        found = difference(texts, 0.05)
        assert found.value == pytest.approx(np.mean([difference([one], 0.05).value for one in texts]))
        words.append(found.word)
    assert stats.binomtest(sum(word != ALIKE for word in words), ENOUGH, 0.05, "greater").pvalue > 0.01


def test_a_long_text_does_not_vouch_for_a_short_one() -> None:
    chance = np.random.default_rng(6)
    words = [
        difference(
            [drawn(chance, of_arm=0.05, documents=4), drawn(chance, of_arm=0.05, documents=500)], 0.05
        ).word
        for _ in range(ENOUGH)
    ]
    assert stats.binomtest(sum(word != ALIKE for word in words), ENOUGH, 0.1, "greater").pvalue > 0.01


def test_the_detectable_difference_is_found_about_four_times_in_five() -> None:
    chance = np.random.default_rng(5)
    detectable = float(np.mean([difference([drawn(chance)], 0.05).detectable for _ in range(100)]))
    better, worse = (
        [difference([drawn(chance, sign * detectable)], 0.05).word for _ in range(200)] for sign in (-1, 1)
    )
    assert 0.65 < better.count(BETTER) / 200 < 0.95 and WORSE not in better
    assert 0.65 < worse.count(WORSE) / 200 < 0.95 and BETTER not in worse


def test_runs_with_the_same_bits_are_not_distinguishable() -> None:
    same = np.ones((3, 5))
    assert difference([Text(same, same, np.ones(5))], 0.05) == Difference(0, 0, 0, 0, 0, 0, 0)
    assert difference([Text(same, same, np.ones(5))], 0.05).word == ALIKE


@pytest.mark.parametrize("comparisons", [1, 10])
def test_all_looks_at_all_comparisons_share_one_level(comparisons: int) -> None:
    spent = [alpha(seeds, comparisons) for seeds in LOOKS]
    assert comparisons * sum(spent) <= ALPHA
    assert comparisons * spent[0] >= 0.6 * ALPHA
    assert alpha(LOOKS[1] - 1, comparisons) == spent[0]


def test_the_seeds_that_are_needed_follow_from_the_spread() -> None:
    seeds_only = Difference(0, -1, 1, 0.01, seeds_variance=0.002**2, documents_variance=0, freedom=4)
    needed = [seeds_needed(seeds_only, 3, 1, wanted) for wanted in (0.02, 0.007, 0.0045, 0.0001)]
    assert needed == [6, 6, 12, None]  # more than there are
    assert seeds_needed(seeds_only, 6, 1, 0.02) == 12
    documents = Difference(0, -1, 1, 0.01, 0.0005**2, documents_variance=0.004**2, freedom=50)
    assert seeds_needed(documents, 3, 1, 0.006) is None
    assert seeds_needed(documents, 3, 1, 0.006, scale=16) == 3
