"""The parts of the first hour on a GPU that need none: it has to go on from where it was stopped, and its
checks have to find what is wrong.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.project import ROOT

CPU = torch.device("cpu")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("gpu_report")


def test_a_step_that_hangs_or_fails_is_written_down_and_tried_again_and_the_others_are_kept(
    benchmark: Any, tmp_path: Path
) -> None:
    programs = {
        "good": "print('noise'); print('{\"passed\": true, \"GB <1>\": 3}')",
        "hangs": "import time; time.sleep(60)",
        "fails": "raise SystemExit('no such kernel')",
    }
    wanted = [benchmark.Step(name, 1 if name == "hangs" else 30) for name in programs]

    def command(step: Any) -> list[str]:
        return [sys.executable, "-c", programs[step.name]]

    report = benchmark.gather(wanted, tmp_path, command, lambda line: None)
    assert report == {
        "good": {"passed": True, "GB <1>": 3},
        "hangs": {"failed": "not done after 1 s"},
        "fails": {"failed": "no such kernel"},
    }
    programs |= {"good": "raise SystemExit('done before')", "hangs": "print('{}')"}
    report = benchmark.gather(wanted, tmp_path, command, lambda line: None)
    assert report["good"]["passed"] and report["hangs"] == {}
    assert json.loads((tmp_path / "report.json").read_text()) == report
    page = (tmp_path / "index.html").read_text()
    assert "<h2>good: passed</h2>" in page and "GB &lt;1&gt;" in page and "no such kernel" in page


def test_speeds_are_drawn_on_the_page(benchmark: Any) -> None:
    speed = {"groundwork": {"tokens_per_s": 5, "mfu": 0.5}, "nanoGPT": {"failed": "out of memory"}}
    assert "data:image/png;base64" in benchmark.page({"speed 124m": speed})
    assert benchmark.plot({"installed": {"torch": "2.13"}}) is None


def test_the_checks_pass_on_a_cpu(benchmark: Any) -> None:
    backends = benchmark.perform("backends", CPU, Path())
    assert backends["passed"] and backends["sdpa"] < 1e-4
    assert benchmark.perform("installed", CPU, Path())["torch"]


@pytest.mark.slow
def test_losses_and_a_resumed_run_are_checked(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = benchmark.perform("losses", CPU, Path())
    assert losses["passed"] and losses["fp32"]["difference"] == 0 < losses["bf16"]["difference"]
    assert losses["expected"][-1] < losses["expected"][0]
    for name, value in {"VOCAB": 512, "TOKENS_A_STEP": 128, "STEPS": 8}.items():
        monkeypatch.setattr(benchmark.train_gpu, name, value)
    sizes = {"124m": {"n_layers": 2, "d_model": 32, "n_heads": 2}}
    monkeypatch.setattr(benchmark.train_gpu, "SIZES", sizes)
    monkeypatch.setattr(benchmark, "SMALL_WINDOWS", (32, 2))
    found = benchmark.perform("resume", CPU, Path())
    assert found == {"steps": 8, "difference": 0.0, "to_the_bit": True, "passed": True}
    graphs = benchmark.perform("CUDA graphs", CPU, Path())  # a CPU has none: two equal runs
    assert (graphs["steps"], graphs["difference"], graphs["passed"]) == (8, 0.0, True)
    assert graphs["CUDA graphs"]["tokens_per_s"] > 0


def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/gpu_report.py", "--output", str(tmp_path / "report")]
    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.strip()) == (
        1,
        "there is no CUDA device, so there is nothing to report",
    )
    assert not (tmp_path / "report").exists()
