"""Kernels whose inner functions have no machine code of their own."""

import gc

import numba
import numpy as np
import pytest

from pipeline.stages import compiled
from pipeline.stages.compiled import inlined, inner, kernel


@inner
def _twice(values: np.ndarray, i: int) -> int:
    return 2 * values[i]


@inlined
def _sum_of_twice(values: np.ndarray) -> int:
    total = 0
    for i in range(len(values)):
        total += _twice(values, i)
    return total


@inner
def _first_two(values: np.ndarray) -> tuple[int, int]:
    return _twice(values, 0), _twice(values, 1)


@kernel
def _sum(values: np.ndarray) -> int:
    return _sum_of_twice(values)


@kernel
def _all(values: np.ndarray) -> tuple[int, int, int]:
    first, second = _first_two(values)
    return _sum(values), first, second


def test_a_function_that_several_kernels_call_is_in_each_of_them() -> None:
    values = np.array([1, 2, 3])
    assert _all(values) == (12, 2, 4)
    assert _sum(values) == 12


def test_compiling_leaves_garbage_collection_as_it_was() -> None:
    assert gc.isenabled()
    _sum(np.array([1], np.uint8))
    assert gc.isenabled()


def test_this_numba_is_the_one_whose_internals_the_compiler_knows() -> None:
    assert numba.__version__.startswith(compiled.COMPILER_KNOWS)


def test_kernels_compile_with_another_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "__version__", "0.99.0")
    called = inner(lambda i: i + 1)
    included = inlined(lambda i: 2 * called(i))
    assert kernel(lambda i: included(i))(3) == 8
