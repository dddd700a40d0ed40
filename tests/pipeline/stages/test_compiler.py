"""Kernels whose inner functions have no machine code of their own."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.types import Function

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


def test_only_what_is_marked_becomes_part_of_its_callers() -> None:
    _sum_of_twice.compile((numba.int16[::1],))
    called = [compiled.library.get_llvm_str() for compiled in _twice.overloads.values()]
    including = [compiled.library.get_llvm_str() for compiled in _sum_of_twice.overloads.values()]
    assert not any("alwaysinline" in code for code in called)
    assert all("alwaysinline" in code for code in including)


def test_compiling_leaves_garbage_collection_as_it_was() -> None:
    assert gc.isenabled()
    _sum(np.array([1], np.uint8))
    assert gc.isenabled()


def test_compiling_leaves_numba_as_it_was_for_the_code_of_others() -> None:
    resolve = Function.get_call_type
    _sum_of_twice.compile((numba.uint16[::1],))
    assert Function.get_call_type is resolve


def test_this_numba_is_the_one_whose_internals_the_compiler_knows() -> None:
    assert numba.__version__.startswith(compiled.COMPILER_KNOWS)


def test_kernels_compile_with_another_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "__version__", "0.99.0")
    called = inner(lambda i: i + 1)
    included = inlined(lambda i: 2 * called(i))
    assert kernel(lambda i: included(i))(3) == 8


FIRST_KERNEL = """
import sys
import numpy as np
from pipeline.stages.dedup.bands import candidate_pairs
left, right = candidate_pairs(np.array([5, 5, 9], np.uint64), np.array([2, 0, 1]))
print(left, right, "scipy.linalg" in sys.modules)
"""


def test_a_kernel_that_was_compiled_before_starts_without_the_compiler(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIRST_KERNEL]
    said = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert [words[-1] for words in said] == ["True", "False"]
    assert said[0][:-1] == said[1][:-1]
