"""The scaling law against the tables of the paper whose runs it was fitted to."""

import pytest

from trainer.tools.planner import law

# Hoffmann et al. 2022: parameters, optimal FLOPs and tokens. Table 3 (approach 1) and table A3 (approach 2).
APPROACH_1 = [
    (400e6, 1.92e19, 8.0e9),
    (1e9, 1.21e20, 20.2e9),
    (10e9, 1.23e22, 205.1e9),
    (67e9, 5.76e23, 1.5e12),
    (175e9, 3.85e24, 3.7e12),
]
APPROACH_2 = [
    (400e6, 1.84e19, 7.7e9),
    (1e9, 1.20e20, 20.0e9),
    (10e9, 1.32e22, 219.5e9),
    (67e9, 6.88e23, 1.7e12),
    (175e9, 4.54e24, 4.3e12),
]


@pytest.mark.parametrize(("parameters", "flops", "tokens"), APPROACH_1 + APPROACH_2)
def test_the_corrected_fit_agrees_with_approaches_1_and_2(
    parameters: float, flops: float, tokens: float
) -> None:
    found_parameters, found_tokens = law.best_for_compute(flops)
    assert found_parameters == pytest.approx(parameters, rel=0.2)
    assert found_tokens == pytest.approx(tokens, rel=0.2)


def test_chinchilla_itself_is_what_its_compute_asked_for_and_7b_does_not_want_its_tokens() -> None:
    parameters, tokens = law.best_for_compute(5.76e23)
    assert (parameters, tokens) == (pytest.approx(70e9, rel=0.1), pytest.approx(1.4e12, rel=0.1))
    assert law.best_tokens(7e9) == pytest.approx(145e9, rel=0.05)  # 1.4 T is ten times too many
    assert law.best_tokens(400e6) < 10e9


def test_the_loss_is_what_follows_from_the_five_numbers_of_the_table() -> None:
    # By hand: 482.01 / 70e9 ** 0.3478 = 0.0815, 2085.43 / 1.4e12 ** 0.3658 = 0.0752.
    assert law.expected_loss(70e9, 1.4e12) == pytest.approx(1.8172 + 0.0815 + 0.0752, abs=1e-4)
    assert law.expected_loss(280e9, 300e9) > law.expected_loss(70e9, 1.4e12)  # Gopher lost to Chinchilla


def test_no_other_size_is_better_for_the_same_compute() -> None:
    parameters, tokens = law.best_for_compute(1e21)
    assert 6 * parameters * tokens == pytest.approx(1e21)
    assert law.best_tokens(parameters) == pytest.approx(tokens)
    best = law.expected_loss(parameters, tokens)
    assert all(
        law.expected_loss(parameters * factor, tokens / factor) > best for factor in (0.5, 0.97, 1.03, 2.0)
    )


def test_what_the_law_was_not_fitted_to_is_extrapolated() -> None:
    assert not law.is_extrapolated(1e9, 20e9)
    assert law.is_extrapolated(1e6, 20e9) and law.is_extrapolated(1e9, 1e12)
    # The smallest recipe: above the loss of guessing one of 4,096 tokens.
    assert law.expected_loss(1e6, 4e5) > 8.3 and not law.holds(1e6, 4e5)
    assert law.holds(134e6, 2.6e9) and law.holds(7e9, 1e12)
