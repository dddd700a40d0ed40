"""The first hour on a GPU: what is installed, whether training is right on it, how fast it is, and where the
time goes, on one page.

python benchmarks/gpu_report.py [--output DIR] [--sizes 124m 1b]

Each step is a process of its own with a limit of time. What it found is in report.json as soon as it ends, so
that a report that was stopped goes on with the steps that are missing. Nothing has to be prepared.
"""

import argparse
import base64
import html
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import train_gpu
import yaml
from harness import gpu_checks
from harness.sidebyside import RESULTS, ROOT

from trainer.config import ModelConfig

Report = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """`seconds`: the limit of its time."""

    name: str
    seconds: int


CHECKS = [Step("installed", 60), Step("losses", 300), Step("backends", 300), Step("resume", 600)]
SPEED_SECONDS, PROFILE_SECONDS = 900, 300
SMALL_WINDOWS = (1024, 4)  # their length, and how many at a time


def steps(sizes: list[str]) -> list[Step]:
    """Right first, fast afterwards."""
    speed = [Step(f"speed {size}", SPEED_SECONDS) for size in sizes]
    return [*CHECKS, *speed, Step("CUDA graphs", 600), Step("profile", PROFILE_SECONDS)]


def perform(name: str, device: torch.device, output: Path) -> dict[str, Any]:
    """The result of one step, in this process."""
    checks: Mapping[str, Callable[[torch.device], dict[str, Any]]] = {
        "installed": gpu_checks.installed,
        "losses": gpu_checks.losses,
        "backends": gpu_checks.backends,
    }
    if name in checks:
        return checks[name](device)
    with tempfile.TemporaryDirectory() as folder:
        if name == "resume":
            return gpu_checks.resume(small_run(Path(folder)))
        if name == "CUDA graphs":
            return gpu_checks.cuda_graphs(small_run(Path(folder)))
        if name == "profile":
            return profile(small_run(Path(folder)), output)
        return speed(name.removeprefix("speed "), Path(folder))


def small_run(folder: Path) -> Path:
    """The configuration of eight steps of the smallest size, with a checkpoint after every four."""
    path, _ = train_gpu.prepare(folder, next(iter(train_gpu.SIZES)), *SMALL_WINDOWS)
    config = yaml.safe_load(path.read_text())
    batch = config["training"]["global_batch_tokens"]
    config["training"] |= {"max_tokens": 8 * batch, "checkpoint": {"every_tokens": 4 * batch}}
    path.write_text(yaml.safe_dump(config))
    return path


def profile(config: Path, output: Path) -> dict[str, Any]:
    """A trace of a few steps for chrome://tracing, kept beside the report."""
    subprocess.run([sys.executable, "-m", "trainer", str(config), "--profile"], cwd=ROOT, check=True)
    traces = sorted((config.parent / "run/profile").rglob("*.json*"))
    kept = []
    for trace in traces:
        (output / trace.name).write_bytes(trace.read_bytes())
        kept.append(trace.name)
    return {"traces": kept}


def speed(size: str, folder: Path) -> dict[str, Any]:
    """Tokens per second beside the peers that can be imported, and the share of the measured bf16 rate by
    two counts of operations: PaLM's and torchtitan's has attention in full, Megatron-LM's what the causal
    order leaves.
    """
    peak, seq_len = train_gpu.matmul_flops(), 1024 if size == "124m" else 4096
    config, work = train_gpu.prepare(folder, size, seq_len, max(1, 16_384 // seq_len))
    model = ModelConfig.model_validate(train_gpu.shape(size))
    full = model.flops_per_token(train_gpu.VOCAB, seq_len)
    causal = model.flops_per_token(train_gpu.VOCAB, seq_len, causal=True)
    masked = folder / "masked.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["training"]["document_masking"] = True
    masked.write_text(yaml.safe_dump(settings | {"run_dir": str(folder / "run")}))
    contenders: dict[str, tuple[Any, ...]] = {
        "groundwork": (train_gpu.ours, config),
        "groundwork, documents kept apart": (train_gpu.ours, masked),
        "nanoGPT": (train_gpu.peer, "nanogpt", work),
        "transformers Trainer": (train_gpu.peer, "transformers", work),
    }
    found: dict[str, Any] = {"seq_len": seq_len, "measured_teraflops": round(peak / 1e12, 1)}
    for name, (contender, *arguments) in contenders.items():
        result = train_gpu.attempt(contender, full, peak, *arguments)
        if "tokens_per_s" in result:
            result["mfu_causal"] = round(result["tokens_per_s"] * causal / peak, 3)
        found[name] = result
    return found


def gather(
    wanted: list[Step], output: Path, command: Callable[[Step], list[str]], said: Callable[[str], object]
) -> Report:
    """Runs the steps that report.json lacks or that failed before; keeps each result at once."""
    path = output / "report.json"
    report: Report = json.loads(path.read_text()) if path.exists() else {}
    for step in wanted:
        if "failed" in report.get(step.name, {"failed": ""}):
            said(f"{step.name}, at most {step.seconds} s")
            report[step.name] = _bounded(command(step), step.seconds)
            path.write_text(json.dumps(report, indent=1) + "\n")
            (output / "index.html").write_text(page(report), encoding="utf-8")
    return report


def _bounded(command: list[str], seconds: int) -> dict[str, Any]:
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {seconds} s"}
    if ended.returncode:
        said = ended.stderr.strip().splitlines()
        return {"failed": said[-1] if said else f"exit status {ended.returncode}"}
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def page(report: Report) -> str:
    """The report as one HTML page."""
    parts = ["<!doctype html><meta charset=utf-8><title>Groundwork on this GPU</title>"]
    parts.append("<style>body{font:15px sans-serif;margin:2em}td{padding:.1em .8em}</style>")
    parts.append("<h1>Groundwork on this GPU</h1>")
    if picture := plot(report):
        parts.append(f'<img alt="Tokens per second" src="data:image/png;base64,{picture}">')
    for name, found in report.items():
        verdict = {True: ": passed", False: ": not passed"}.get(found.get("passed"), "")
        verdict = ": failed" if "failed" in found else verdict
        parts.append(f"<h2>{html.escape(name)}{verdict}</h2><table>")
        for key, value in found.items():
            parts.append(f"<tr><td>{html.escape(key)}<td>{html.escape(json.dumps(value))}")
        parts.append("</table>")
    return "\n".join(parts) + "\n"


def plot(report: Report) -> str | None:
    """Tokens per second of each contender by size, as PNG in base64; None if nothing was measured."""
    bars = {
        f"{name.removeprefix('speed ')}: {contender}": result["tokens_per_s"]
        for name, found in report.items()
        for contender, result in found.items()
        if isinstance(result, dict) and "tokens_per_s" in result
    }
    if not bars:
        return None
    from io import BytesIO

    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.4 * len(bars)))
    axes.barh(list(bars)[::-1], list(bars.values())[::-1])
    axes.set_xlabel("tokens per second")
    file = BytesIO()
    figure.savefig(file, format="png", dpi=100, bbox_inches="tight")
    pyplot.close(figure)
    return base64.b64encode(file.getvalue()).decode()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path, default=RESULTS / "gpu_report")
    options.add_argument("--sizes", nargs="+", default=["124m", "1b"], choices=train_gpu.SIZES)
    options.add_argument("--step", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device, so there is nothing to report")
    output = chosen.output.resolve()
    if chosen.step:
        print(json.dumps(perform(chosen.step, torch.device("cuda"), output)))
        return
    output.mkdir(parents=True, exist_ok=True)

    def command(step: Step) -> list[str]:
        return [sys.executable, __file__, "--output", str(output), "--step", step.name]

    gather(steps(chosen.sizes), output, command, lambda line: print(line, flush=True))
    print(output / "index.html")


if __name__ == "__main__":
    main()
