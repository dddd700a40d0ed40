"""The scaling law against the tables of the paper whose runs it was fitted to."""

import pytest

from trainer.tools.planner import law

# Hoffmann et al. 2022: parameters and their optimal tokens, by approach 1 (table 3) and 2 (table A3).
OPTIMA = [(400e6, 8.0e9), (1e9, 20.2e9), (10e9, 205.1e9), (67e9, 1.5e12), (175e9, 3.7e12)]
OPTIMA += [(400e6, 7.7e9), (1e9, 20.0e9), (10e9, 219.5e9), (67e9, 1.7e12), (175e9, 4.3e12)]


@pytest.mark.parametrize(("parameters", "tokens"), OPTIMA)
def test_the_corrected_fit_agrees_with_approaches_1_and_2(parameters: float, tokens: float) -> None:
    assert law.best_tokens(parameters) == pytest.approx(tokens, rel=0.35)


def test_the_loss_is_what_follows_from_the_five_numbers_of_the_table() -> None:
    # By hand: 482.01 / 70e9 ** 0.3478 = 0.0815, 2085.43 / 1.4e12 ** 0.3658 = 0.0752.
    assert law.expected_loss(70e9, 1.4e12) == pytest.approx(1.8172 + 0.0815 + 0.0752, abs=1e-4)
    assert law.expected_loss(280e9, 300e9) > law.expected_loss(70e9, 1.4e12)  # Gopher lost to Chinchilla


def test_no_other_size_is_better_for_the_same_compute() -> None:
    tokens = law.best_tokens(1e9)
    best = law.expected_loss(1e9, tokens)
    assert all(law.expected_loss(1e9 * factor, tokens / factor) > best for factor in (0.5, 0.97, 1.03, 2.0))


def test_what_the_law_was_not_fitted_to_is_extrapolated() -> None:
    assert law.covers(1e9, 20e9)
    assert law.covers(law.FITTED_PARAMETERS[1], law.FITTED_TOKENS[1])
    assert law.covers(law.FITTED_PARAMETERS[0], law.FITTED_TOKENS[0])
    assert not law.covers(1e6, 20e9) and not law.covers(1e9, 1e12)
    # The smallest recipe: above the loss of guessing one of 4,096 tokens.
    assert law.expected_loss(1e6, 4e5) > 8.3 and not law.covers(1e6, 4e5, law.EXTRAPOLATED_BY)
    assert all(law.covers(*plan, law.EXTRAPOLATED_BY) for plan in ((134e6, 2.6e9), (7e9, 1e12)))
