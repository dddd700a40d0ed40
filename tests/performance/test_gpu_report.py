"""The parts of the first hour on a GPU that need none: it has to go on from where it was stopped, and its
checks have to find what is wrong.
"""

import importlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.integration.project import ROOT


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "performance"), *sys.path])
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


def test_a_step_at_its_limit_ends_with_what_it_has_started(benchmark: Any, tmp_path: Path) -> None:
    program = "import subprocess; subprocess.run(['sh', '-c', 'sleep 3; touch left'], cwd={!r})"
    command = [sys.executable, "-c", program.format(str(tmp_path))]
    found = benchmark.gather([benchmark.Step("slow", 1)], tmp_path, lambda step: command, lambda line: None)
    assert found == {"slow": {"failed": "not done after 1 s"}}
    time.sleep(3)
    assert not (tmp_path / "left").exists()


def test_speeds_are_drawn_and_tabled_on_the_page(benchmark: Any) -> None:
    ours = {"tokens_per_s": 5000, "mfu": 0.5, "mfu_causal": 0.45, "usd_per_billion_tokens": 12.5}
    page = benchmark.page(
        {
            "speed 124m: groundwork": ours,
            "speed 124m: nanoGPT": {"failed": "out of <memory>"},
            "speed 124m: nanochat": {"skipped": "clone it"},
        }
    )
    assert "data:image/png;base64" in page and "<td>0.5<td>0.45<td>12.5" in page
    assert "failed: out of &lt;memory&gt;" in page and "skipped: clone it" in page
    assert benchmark.plot({"nanoGPT": {"failed": "out of memory"}}) is None


def test_the_checks_pass_on_a_cpu(benchmark: Any, tmp_path: Path) -> None:
    settings = benchmark.Settings("cpu", ["tiny"], tmp_path)
    backends = benchmark.perform("backends", settings)
    assert backends["passed"] and backends["sdpa"] < 1e-4
    assert benchmark.perform("installed", settings)["torch"]
    assert "run on a GPU" in benchmark.perform("flash-attn", settings)["skipped"]
    assert "kernels for GPUs" in benchmark.perform("stores", settings)["skipped"]
    assert "make test" in benchmark.perform("tests", settings)["skipped"]
    windows = [torch.randn(1, 2, 64, 8)] * 3
    tokens = torch.ones(1, 64, dtype=torch.int64)
    assert benchmark.gpu_checks.milliseconds("sdpa", torch.device("cpu"), windows, tokens, times=1) > 0


def test_every_contender_has_a_step_of_its_own_and_the_price_reaches_it(
    benchmark: Any, tmp_path: Path
) -> None:
    names = [step.name for step in benchmark.steps(["1b"], "cuda", 10)]
    assert "speed 1b: torchtitan, documents apart" in names and names[0] == "installed"
    settings = benchmark.Settings("cuda", ["1b"], tmp_path, nanochat="/clone", price=3.5)
    command = settings.command(benchmark.Step("speed 1b: nanochat", 1))
    asked = ["--step", "speed 1b: nanochat", "--nanochat", "/clone", "--price", "3.5", "--minutes", "10.0"]
    assert command[-8:] == asked


def test_quality_beside_nanochat_is_skipped_in_a_sentence_where_it_is_not_cloned(
    benchmark: Any, tmp_path: Path
) -> None:
    settings = benchmark.Settings("cpu", ["tiny"], tmp_path, nanochat=str(tmp_path))
    found = benchmark.perform("quality beside nanochat", settings)
    assert "git clone https://github.com/karpathy/nanochat" in found["skipped"]


def test_nanochats_rate_rises_stays_and_falls_over_the_steps_that_fit(benchmark: Any) -> None:
    train_nanochat = importlib.import_module("train_nanochat")
    groups = [{"kind": "muon", "initial_lr": 1.0}, {"kind": "adamw", "initial_lr": 10.0}]
    optimizer, steps = SimpleNamespace(param_groups=groups), 1000
    found = []
    for step in (0, 39, 350, 675, 999):
        train_nanochat.schedule(optimizer, step, steps, 0.28)
        assert groups[1]["lr"] == pytest.approx(10 * groups[0]["lr"])
        found.append([groups[0][name] for name in ("lr", "momentum", "weight_decay")])
    # By hand from base_train.py at 92d63d4: 40 steps of warmup, a fall over the last 650 to a twentieth.
    assert [rate for rate, *_ in found] == pytest.approx([1 / 40, 1, 1, 0.525, 0.05 + 0.95 / 650])
    assert [momentum for _, momentum, _ in found[:1]] == [0.85]
    assert found[3][1:] == pytest.approx([0.935, 0.14 * (1 + math.cos(0.675 * math.pi))])


@pytest.mark.slow
def test_losses_and_a_resumed_run_are_checked(benchmark: Any, tmp_path: Path) -> None:
    settings = benchmark.Settings("cpu", ["tiny"], tmp_path)
    losses = benchmark.perform("losses", settings)
    assert losses["passed"] and losses["fp32"]["difference"] == 0 < losses["bf16"]["difference"]
    assert losses["expected"][-1] < losses["expected"][0]
    found = benchmark.perform("resume", settings)
    assert found == {"steps": 8, "difference": 0.0, "to_the_bit": True, "passed": True}
    graphs = benchmark.perform("CUDA graphs", settings)  # a CPU has none: two equal runs
    assert (graphs["steps"], graphs["difference"], graphs["passed"]) == (8, 0.0, True)
    assert graphs["with graphs"]["tokens_per_s"] > 0


def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "performance/gpu_report.py", "--output", str(tmp_path / "report")]
    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.strip()) == (
        1,
        "there is no CUDA device, so there is nothing to report; --device cpu tries the way",
    )
    assert not (tmp_path / "report").exists()
