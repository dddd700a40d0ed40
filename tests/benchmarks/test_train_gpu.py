"""The GPU benchmark's run of our trainer, on a CPU and small: on the first GPU it has to work."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.integration.project import ROOT


@pytest.mark.slow
def test_our_run_of_the_gpu_benchmark_ends_with_a_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    benchmark = importlib.import_module("train_gpu")
    for name, value in {"VOCAB": 512, "TOKENS_A_STEP": 128, "STEPS": 4, "WARMUP": 1}.items():
        monkeypatch.setattr(benchmark, name, value)
    monkeypatch.setitem(benchmark.SIZES, "tiny", {"n_layers": 2, "d_model": 32, "n_heads": 2})
    config, work = benchmark.prepare(tmp_path, "tiny", 32, 2)
    measured = benchmark.ours(config)
    assert measured["tokens_per_s"] > 0
    assert len(work.read()) == 40 * 128
