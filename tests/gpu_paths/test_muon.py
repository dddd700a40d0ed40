"""Muon on a pretended GPU: `make test-gpu-paths`."""

from pathlib import Path

import pytest

from tests.gpu_paths.test_traced import library, pytestmark, traced, with_triton

__all__ = ["library", "pytestmark"]


# The momentum of all matrices and the update of all weights take 22 bytes; the rest is shared out.
@with_triton
@pytest.mark.parametrize(("processes", "most"), [(1, 44.1), (8, 26.5)])
def test_a_step_of_muon_moves_each_weight_once_and_waits_for_nothing(
    library: Path, processes: int, most: float
) -> None:
    found = traced(library, "step", module="traced_muon", recipe="gpu-1b", processes=processes)
    assert found["bytes_a_weight"] <= most
    assert found["synchronizations"] == 0
