"""Chinchilla's law against published numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.tools.planner.law import BESIROGLU, HOFFMANN, Law, extrapolates

CHINCHILLA, GOPHER = (70e9, 1.4e12), (280e9, 300e9)
# Hoffmann et al. 2022: parameters and their optimal tokens by approach 1 (table 3) and 2 (table A3).
OPTIMA = [(400e6, 8.0e9), (1e9, 20.2e9), (10e9, 205.1e9), (67e9, 1.5e12), (175e9, 3.7e12)]
OPTIMA += [(400e6, 7.7e9), (1e9, 20.0e9), (10e9, 219.5e9), (67e9, 1.7e12), (175e9, 4.3e12)]


@pytest.mark.parametrize(("plan", "of_size", "of_data"), [(CHINCHILLA, 0.083, 0.163), (GOPHER, 0.052, 0.251)])
def test_the_terms_are_those_that_are_known_of_chinchilla_and_gopher(
    plan: tuple[float, float], of_size: float, of_data: float
) -> None:
    assert HOFFMANN.loss(*plan) == pytest.approx(1.69 + of_size + of_data, abs=1e-3)


def test_the_second_fit_gives_what_follows_from_its_five_numbers() -> None:
    # By hand: 482.01 / 70e9 ** 0.3478 = 0.0815, 2085.43 / 1.4e12 ** 0.3658 = 0.0752.
    assert BESIROGLU.loss(*CHINCHILLA) == pytest.approx(1.8172 + 0.0815 + 0.0752, abs=1e-4)


@pytest.mark.parametrize(("law", "exponent"), [(HOFFMANN, 0.454), (BESIROGLU, 0.513)])
def test_the_best_size_grows_with_computation_as_published(law: Law, exponent: float) -> None:
    """Table 2 of Hoffmann et al., approach 3, before rounding; beta / (alpha + beta) of the second fit."""
    sizes = [law.optimum(parameters, 1.0)[0] for parameters in (1e20, 1e24)]
    assert math.log10(sizes[1] / sizes[0]) / 4 == pytest.approx(exponent, abs=0.004)


@pytest.mark.parametrize(("parameters", "tokens"), OPTIMA)
def test_the_second_fit_agrees_with_the_other_approaches(parameters: float, tokens: float) -> None:
    assert BESIROGLU.optimum(parameters, tokens)[0] == pytest.approx(parameters, rel=0.2)


@pytest.mark.parametrize("law", [HOFFMANN, BESIROGLU])
@given(
    parameters=st.floats(1e6, 1e12),
    tokens=st.floats(1e6, 1e14),
    factor=st.floats(0.01, 100).filter(lambda factor: abs(factor - 1) > 0.01),
)
def test_nothing_else_that_takes_the_same_computation_has_a_lower_loss(
    law: Law, parameters: float, tokens: float, factor: float
) -> None:
    best, on = law.optimum(parameters, tokens)
    assert best * on == pytest.approx(parameters * tokens)
    assert law.loss(best, on) <= law.loss(parameters, tokens) * (1 + 1e-12)
    assert law.loss(best, on) < law.loss(best * factor, on / factor)


def test_a_plan_beyond_the_runs_of_the_fit_extrapolates() -> None:
    assert not extrapolates(1e9, 20e9)
    assert extrapolates(1e6, 20e9) and extrapolates(1e9, 1e12)
