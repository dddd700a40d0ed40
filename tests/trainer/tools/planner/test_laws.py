"""The scaling laws against the tables of the papers that they come from."""

import math

import pytest

from trainer.tools.planner.laws import LAWS, ScalingLaw

EPOCH, PRINTED, UNROUNDED = LAWS["epoch"], LAWS["hoffmann"], LAWS["hoffmann-unrounded"]

# Hoffmann et al. 2022: parameters, optimal FLOPs and tokens. Table 3 (approach 1); table A3 (approach 2,
# approach 3).
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
# The table prints 1.26e24 for 175 B parameters on 12 T tokens; 6 N D is ten times that.
APPROACH_3 = [
    (400e6, 2.21e19, 9.2e9),
    (1e9, 1.62e20, 27.1e9),
    (10e9, 2.46e22, 410.1e9),
    (67e9, 1.71e24, 4.1e12),
    (175e9, 1.26e25, 12.0e12),
]


@pytest.mark.parametrize(("parameters", "flops", "tokens"), APPROACH_3)
def test_the_unrounded_fit_gives_the_papers_own_table_of_approach_3(
    parameters: float, flops: float, tokens: float
) -> None:
    found_parameters, found_tokens = UNROUNDED.best_for_compute(flops)
    assert found_parameters == pytest.approx(parameters, rel=0.07)
    assert found_tokens == pytest.approx(tokens, rel=0.07)


@pytest.mark.parametrize(("parameters", "flops", "tokens"), APPROACH_1 + APPROACH_2)
def test_the_re_fit_agrees_with_approaches_1_and_2(parameters: float, flops: float, tokens: float) -> None:
    found_parameters, found_tokens = EPOCH.best_for_compute(flops)
    assert found_parameters == pytest.approx(parameters, rel=0.2)
    assert found_tokens == pytest.approx(tokens, rel=0.2)


def test_chinchilla_itself_is_what_its_compute_asked_for_and_7b_does_not_want_its_tokens() -> None:
    parameters, tokens = EPOCH.best_for_compute(5.76e23)
    assert (parameters, tokens) == (pytest.approx(70e9, rel=0.1), pytest.approx(1.4e12, rel=0.1))
    assert EPOCH.best_tokens(7e9) == pytest.approx(145e9, rel=0.05)  # 1.4 T is ten times too many
    assert EPOCH.best_tokens(400e6) < 10e9


def test_the_printed_fit_gives_the_losses_that_follow_from_its_five_numbers() -> None:
    # By hand: 406.4 / (70e9 ** 0.34) = 0.0836, 410.7 / (1.4e12 ** 0.28) = 0.1630.
    assert PRINTED.loss(70e9, 1.4e12) == pytest.approx(1.69 + 0.0836 + 0.1630, abs=2e-4)
    assert PRINTED.loss(280e9, 300e9) > PRINTED.loss(70e9, 1.4e12)  # Gopher lost to Chinchilla


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_no_other_size_is_better_for_the_same_compute(law: ScalingLaw) -> None:
    parameters, tokens = law.best_for_compute(1e21)
    assert 6 * parameters * tokens == pytest.approx(1e21)
    assert law.best_tokens(parameters) == pytest.approx(tokens)
    best = law.loss(parameters, tokens)
    assert all(law.loss(parameters * factor, tokens / factor) > best for factor in (0.5, 0.97, 1.03, 2.0))


def test_tokens_for_a_loss_are_the_inverse_and_infinite_below_what_a_size_can_reach() -> None:
    assert EPOCH.tokens_for_loss(1e9, EPOCH.loss(1e9, 3e10)) == pytest.approx(3e10)
    assert EPOCH.tokens_for_loss(1e9, EPOCH.loss(7e9, 1e13)) == math.inf
