"""The first hour on a GPU: what is installed, whether training is right on it, how fast it is beside others,
and where the time goes, on one page.

python performance/gpu_report.py [--output DIR] [--sizes 124m 1b] [--nanochat CLONE] [--price USD]
    [--text FILE ...] [--minutes 10]

Each step is a process of its own with a limit of time. What it found is in report.json as soon as it ends, so
that a report that was stopped goes on with the steps that are missing. Nothing has to be prepared; peers that
are not here are named, with how to get them. `--device cpu` tries the way through every step on a CPU, with
models so small that their speeds say nothing.
"""

import argparse
import base64
import html
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import train_gpu
import train_nanochat
import yaml
from harness import gpu_checks
from harness.sidebyside import RESULTS, ROOT

Report = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """`seconds`: the limit of its time."""

    name: str
    seconds: int


CHECKS = [
    Step("installed", 60),
    Step("losses", 300),
    Step("stores", 120),
    Step("backends", 300),
    Step("flash-attn", 300),
    Step("resume", 600),
    Step("tests", 900),
]
SPEED_SECONDS, PROFILE_SECONDS = 300, 300
# Their length, and how many at a time.
WINDOWS = {"tiny": (64, 2), "124m": (1024, 16), "1b": (4096, 4), "3b": (4096, 4)}
REPORT = "report.json"
SMALLEST = {"cpu": "tiny", "cuda": "124m"}
QUALITY = "quality beside nanochat"
DEPTHS, MINUTES = {"cpu": 2, "cuda": 12}, {"cpu": 0.2, "cuda": 10.0}
# Both train twice, and before that text is made into tokens.
PREPARING = 1800
COLUMNS = {
    "tokens_per_s": "tokens/s",
    "mfu": "share of the measured rate, attention in full (PaLM, torchtitan)",
    "mfu_causal": "attention as the causal order leaves it (Megatron-LM)",
    "peak_gb": "peak memory, GB",
    "usd_per_billion_tokens": "USD a billion tokens",
}


@dataclass(frozen=True)
class Settings:
    """`price`: USD for an hour of this machine. `nanochat`: where it was cloned to. `text`: files that both
    learn from for so many `minutes`.
    """

    device: str
    sizes: list[str]
    output: Path
    nanochat: str | None = None
    price: float | None = None
    text: list[str] = field(default_factory=list)
    minutes: float = 10.0

    def command(self, step: Step) -> list[str]:
        """The step in a process of its own."""
        given = ["--device", self.device, "--output", str(self.output), "--step", step.name]
        given += ["--nanochat", self.nanochat] if self.nanochat else []
        given += ["--price", str(self.price)] if self.price else []
        given += ["--text", *self.text] if self.text else []
        return [sys.executable, __file__, *given, "--minutes", str(self.minutes)]


def steps(sizes: list[str], device: str, minutes: float) -> list[Step]:
    """Right first, fast afterwards."""
    contenders = (*train_gpu.OURS, *train_gpu.PEERS)
    speed = [Step(f"speed {size}: {name}", SPEED_SECONDS) for size in sizes for name in contenders]
    graphs = [Step("CUDA graphs", 300)] if device == "cuda" else []
    quality = Step(QUALITY, PREPARING + round(120 * minutes))
    return [*CHECKS, Step("products", 60), *speed, *graphs, Step("profile", PROFILE_SECONDS), quality]


def perform(name: str, settings: Settings) -> dict[str, Any]:
    """The result of one step, in this process."""
    checks: Mapping[str, Callable[[torch.device], dict[str, Any]]] = {
        "installed": gpu_checks.installed,
        "losses": gpu_checks.losses,
        "stores": gpu_checks.stores,
        "backends": gpu_checks.backends,
        "flash-attn": gpu_checks.flash_package,
        "tests": gpu_checks.tests,
    }
    if name in checks:
        return checks[name](torch.device(settings.device))
    if name == "products":
        return {"flops_per_s": train_gpu.matmul_flops(settings.device)}
    with tempfile.TemporaryDirectory() as folder:
        if name == "resume":
            return gpu_checks.resume(small_run(Path(folder), settings.device))
        if name == "CUDA graphs":
            return gpu_checks.cuda_graphs(small_run(Path(folder), settings.device))
        if name == QUALITY:
            return quality(Path(folder), settings)
        if name == "profile":
            return profile(small_run(Path(folder), settings.device), settings.output)
        size, _, contender = name.removeprefix("speed ").partition(": ")
        return speed(size, contender, Path(folder), settings)


def small_run(folder: Path, device: str) -> Path:
    """The configuration of eight steps of the smallest size, with a checkpoint after every four."""
    path, _ = train_gpu.prepare(folder, SMALLEST[device], *WINDOWS[SMALLEST[device]], device)
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


def quality(folder: Path, settings: Settings) -> dict[str, Any]:
    """Bits per byte of held-out text, ours and nanochat's, after the same time on the same text."""
    text = settings.text or train_nanochat.samples()
    if said := train_gpu.missing("nanochat", settings.nanochat):
        return {"skipped": said}
    if not text:
        return {"skipped": "there is no text to learn from: give files with --text"}
    assert settings.nanochat
    depth = DEPTHS[settings.device]
    return train_nanochat.compare(folder, settings.device, settings.nanochat, depth, settings.minutes, text)


def speed(size: str, contender: str, folder: Path, settings: Settings) -> dict[str, Any]:
    """What one contender does, and what a billion tokens cost at the price of an hour."""
    seq_len, rows = WINDOWS[size]
    # Measured once, so that the shares of all contenders are of one rate.
    peak = json.loads((settings.output / REPORT).read_text())["products"]["flops_per_s"]
    found = train_gpu.measured(
        contender, folder, size, seq_len, rows, settings.device, settings.nanochat, peak
    )
    if settings.price and "tokens_per_s" in found:
        hours = 1e9 / found["tokens_per_s"] / 3600
        found["usd_per_billion_tokens"] = round(hours * settings.price, 2)
    return {"seq_len": seq_len} | found


def gather(
    wanted: list[Step], output: Path, command: Callable[[Step], list[str]], said: Callable[[str], object]
) -> Report:
    """Runs the steps that report.json lacks, or that failed or were skipped; keeps each result at once."""
    path = output / REPORT
    report: Report = json.loads(path.read_text()) if path.exists() else {}
    for step in wanted:
        if {"failed", "skipped"} & report.get(step.name, {"failed": ""}).keys():
            said(f"{step.name}, at most {step.seconds} s")
            report[step.name] = _bounded(command(step), step.seconds)
            path.write_text(json.dumps(report, indent=1) + "\n")
            (output / "index.html").write_text(page(report), encoding="utf-8")
    return report


def _bounded(command: list[str], seconds: int) -> dict[str, Any]:
    """What the command printed last. At the limit everything that it has started ends with it."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, complained = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"failed": f"not done after {seconds} s"}
    if process.returncode:
        said = complained.strip().splitlines()
        return {"failed": said[-1] if said else f"exit status {process.returncode}"}
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def page(report: Report) -> str:
    """The report as one HTML page: the speeds in a table and a plot for each size, then the rest."""
    parts = ["<!doctype html><meta charset=utf-8><title>Groundwork on this machine</title>"]
    parts.append(
        "<style>body{font:15px sans-serif;margin:2em;max-width:75em}td,th{padding:.2em .8em;text-align:left;"
        "vertical-align:top}tr:nth-child(even){background:#f3f3f3}</style>"
    )
    parts.append("<h1>Groundwork on this machine</h1>")
    for size, found in speeds(report).items():
        parts.append(f"<h2>Speed, {html.escape(size)}</h2>")
        if picture := plot(found):
            parts.append(f'<img alt="Tokens per second" src="data:image/png;base64,{picture}">')
        parts.append(_table(found))
    for name, result in report.items():
        if not name.startswith("speed "):
            verdict = {True: ": passed", False: ": not passed"}.get(result.get("passed"), "")
            verdict = ": failed" if "failed" in result else verdict
            parts.append(f"<h2>{html.escape(name)}{verdict}</h2><table>")
            for key, value in result.items():
                parts.append(f"<tr><td>{html.escape(key)}<td>{html.escape(json.dumps(value))}")
            parts.append("</table>")
    return "\n".join(parts) + "\n"


def speeds(report: Report) -> dict[str, Report]:
    """Results by size and contender."""
    found: dict[str, Report] = {}
    for name, result in report.items():
        if name.startswith("speed "):
            size, _, contender = name.removeprefix("speed ").partition(": ")
            found.setdefault(size, {})[contender] = result
    return found


def _table(found: Report) -> str:
    shown = [key for key in COLUMNS if any(key in result for result in found.values())]
    rows = ["<table><tr><th>" + "".join(f"<th>{COLUMNS[key]}" for key in shown)]
    for contender, result in found.items():
        cells = "".join(f"<td>{result.get(key, '')}" for key in shown)
        if said := result.get("skipped") or result.get("failed"):
            reason = ("skipped: " if "skipped" in result else "failed: ") + said
            cells = f"<td colspan={max(1, len(shown))}>{html.escape(reason)}"
        rows.append(f"<tr><td>{html.escape(contender)}{cells}")
    return "\n".join([*rows, "</table>"])


def plot(found: Report) -> str | None:
    """Tokens per second of each contender, as PNG in base64; None if nothing was measured."""
    bars = {name: result["tokens_per_s"] for name, result in found.items() if "tokens_per_s" in result}
    if not bars:
        return None
    from io import BytesIO

    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.4 * len(bars)))
    colors = ["#1f5fa8" if name in train_gpu.OURS else "#b0b0b0" for name in bars]
    drawn = axes.barh(list(bars), list(bars.values()), color=colors)
    axes.bar_label(drawn, fmt="{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("tokens per second")
    file = BytesIO()
    figure.savefig(file, format="png", dpi=100, bbox_inches="tight")
    pyplot.close(figure)
    return base64.b64encode(file.getvalue()).decode()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path, default=RESULTS / "gpu_report")
    options.add_argument("--sizes", nargs="+", choices=WINDOWS, help="default: 124m 1b, on a CPU tiny")
    options.add_argument("--device", choices=SMALLEST, default="cuda")
    options.add_argument("--nanochat", help="where nanochat was cloned to; default: $NANOCHAT")
    options.add_argument("--price", type=float, help="USD for an hour of this machine")
    options.add_argument("--text", nargs="+", default=[], help="files to learn from; default: the samples")
    options.add_argument("--minutes", type=float, help="of learning from them; default: 10, on a CPU 0.2")
    options.add_argument("--step", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device, so there is nothing to report; --device cpu tries the way")
    sizes = chosen.sizes or (["tiny"] if chosen.device == "cpu" else ["124m", "1b"])
    nanochat = chosen.nanochat or os.environ.get("NANOCHAT")
    minutes = chosen.minutes or MINUTES[chosen.device]
    text = [str(Path(file).resolve()) for file in chosen.text]
    settings = Settings(chosen.device, sizes, chosen.output.resolve(), nanochat, chosen.price, text, minutes)
    if chosen.step:
        print(json.dumps(perform(chosen.step, settings)))
        return
    settings.output.mkdir(parents=True, exist_ok=True)
    gather(
        steps(sizes, chosen.device, minutes),
        settings.output,
        settings.command,
        lambda line: print(line, flush=True),
    )
    print(settings.output / "index.html")


if __name__ == "__main__":
    main()
