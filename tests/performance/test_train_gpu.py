"""The GPU benchmark's contenders, on a CPU and small: on the first GPU they have to work."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.project import ROOT


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "performance"), *sys.path])
    return importlib.import_module("train_gpu")


@pytest.mark.slow
@pytest.mark.parametrize("contender", ["groundwork, documents apart", "nanoGPT"])
def test_a_contender_ends_with_a_speed_and_both_counts_of_its_share(
    benchmark: Any, contender: str, tmp_path: Path
) -> None:
    found = benchmark.measured(contender, tmp_path, "tiny", 64, 2, "cpu", None, 1e15)
    assert found["tokens_per_s"] > 0 and found["peak_gb"] > 0
    assert 0 <= found["mfu_causal"] <= found["mfu"] < 1


def test_contenders_read_the_same_documents(benchmark: Any, tmp_path: Path) -> None:
    _, work = benchmark.prepare(tmp_path, "tiny", 64, 2, "cpu")
    tokens = work.read()
    assert len(tokens) == 40 * 512 and tokens[0] == 2
    assert 10 < np.count_nonzero(tokens == 2) < 100


def test_a_peer_that_is_not_here_is_skipped_with_how_to_get_it(benchmark: Any, tmp_path: Path) -> None:
    found = benchmark.measured("nanochat", tmp_path, "tiny", 64, 2, "cpu", str(tmp_path), 1e15)
    assert list(found) == ["skipped"]
    assert "git clone" in found["skipped"] and "--nanochat" in found["skipped"]
