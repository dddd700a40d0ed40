"""The optimizers beside each other: bits per byte on held-out text after as many seconds of training, bytes
of state for each weight, and memory.

`python performance/optimizers.py DIRECTORY` needs the sample corpora in ../shared/corpora and torchao. Books,
encyclopedia and technical documents go through our pipeline once, as for `quality_per_time.py`, which may
have the same DIRECTORY. Each kind trains the model of the default recipe with the defaults of its kind, three
seeds, on as many tokens as it reads in `--seconds`. How many these are is found before: all kinds go step by
step in turns. A step counts by its place among ten, since Sophia reads a second pass before every tenth.

Each run is kept in DIRECTORY as it ends, so the same command goes on where it was stopped. `--sweep` trains
one seed of each kind at multiples of its learning rate instead, and prints what came of it.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.sidebyside import ROOT, Report, record
from harness.training_run import paced
from harness.turns import steps_in_turns
from quality_per_time import Job, configured, prepare
from safetensors import safe_open

from trainer.config import DataConfig, OptimizerConfig, load_run_config
from trainer.system import figures, launch
from trainer.system.durable import read_json_lines

KINDS = ("muon", "adamw", "adamw_8bit", "adafactor", "lion", "sophia")
FIGURE = ROOT / ".images" / "optimizers.png"
PERIOD, WARMUP = 10, 3
POINTS = 20
MULTIPLES = (1 / 3, 1, 3)


def changes(kind: str, multiple: float = 1) -> dict[str, Any]:
    """What of the default recipe is changed: the defaults of another kind, at a multiple of its rates."""
    made = OptimizerConfig.model_validate({"kind": kind})
    rates = {"lr": made.lr * multiple, "muon_lr": made.muon_lr * (multiple if kind == "muon" else 1)}
    given = made.model_copy(update=rates).model_dump(mode="json")
    return {"optimizer": given if kind != "muon" else {name: given[name] for name in rates}}


def tokens_per_second(
    directory: Path, data: DataConfig, kinds: Sequence[str], turns: int
) -> dict[str, float]:
    """Of each kind, when all take turns."""
    kept = directory / "optimizer-speeds.json"
    speeds: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    if not speeds.keys() >= set(kinds):
        contenders = {}
        for kind in kinds:
            shutil.rmtree(directory / f"speed-{kind}", ignore_errors=True)
            config = configured(directory / f"speed-{kind}", data, Job(kind, 1, 10**9), changes(kind))
            command = [sys.executable, __file__, str(directory), "--pace", str(config)]
            contenders[kind] = (command, launch.environment())
        batch = load_run_config(config).training.global_batch_tokens
        for kind, steps in steps_in_turns(contenders, WARMUP, turns).items():
            # The mean over a period of the median step at each place.
            places = [
                statistics.median(step["seconds"] for step in steps[at::PERIOD]) for at in range(PERIOD)
            ]
            speeds[kind] = batch / statistics.mean(places)
        kept.write_text(json.dumps(speeds))
    return speeds


def trained(directory: Path, data: DataConfig, job: Job, changed: dict[str, Any]) -> Report:
    """What came of a run of `python -m trainer`: read back when it is done already."""
    path = job.path(directory)
    kept = path.with_name(f"{path.name}.json")
    if not kept.exists():
        config = configured(path, data, job, changed)
        environment = os.environ | launch.environment()
        subprocess.run(launch.command(config), check=True, cwd=ROOT, env=environment)
        kept.write_text(json.dumps(_facts(path)))
        shutil.rmtree(path / "checkpoints")
    found: Report = json.loads(kept.read_text())
    print(f"{path.name}: {found['bits_per_byte']:.4f} bits per byte, {found['tokens']:,} tokens", flush=True)
    return found


def _facts(run_dir: Path) -> Report:
    records = read_json_lines(run_dir / "metrics.jsonl")
    steps = [one for one in records if one["kind"] == "train"]
    some = max(1, len(steps) // POINTS)
    [checkpoint] = (run_dir / "checkpoints").glob("step-*")
    state = _bytes(checkpoint / "optimizer.safetensors")
    return {
        "bits_per_byte": records[-1]["bits_per_byte"],
        "tokens": records[-1]["tokens"],
        "state_bytes_per_weight": 4
        * state
        / _bytes(checkpoint / "hf" / "model.safetensors"),  # which is fp32
        "peak_mb": max(one["memory_mb"] for one in steps),
        "curve": [
            [steps[at + some - 1]["tokens"], statistics.mean(one["loss"] for one in steps[at : at + some])]
            for at in range(0, len(steps) - some + 1, some)
        ],
    }


def _bytes(path: Path) -> int:
    """Of all tensors in a file."""
    with safe_open(path, "pt") as file:
        return sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118 (it is no mapping)


def compared(directory: Path, data: DataConfig, chosen: argparse.Namespace) -> Report:
    """Of each kind what came of its runs, one for each seed."""
    speeds = tokens_per_second(directory, data, chosen.kinds, chosen.turns)
    runs: dict[str, list[Report]] = {kind: [] for kind in chosen.kinds}
    for seed in chosen.seeds:
        for kind in chosen.kinds:
            job = Job(kind, seed, int(chosen.seconds * speeds[kind]))
            runs[kind].append(trained(directory, data, job, changes(kind)))
    found = {}
    for kind, of in runs.items():
        bits = [run["bits_per_byte"] for run in of]
        found[kind] = {
            "bits_per_byte": round(statistics.mean(bits), 4),
            "by_seed": [round(one, 4) for one in bits],
            "spread": round(max(bits) - min(bits), 4),
            "tokens": of[0]["tokens"],
            "tokens_per_s": round(speeds[kind]),
            "state_bytes_per_weight": round(of[0]["state_bytes_per_weight"], 3),
            "peak_mb": round(max(run["peak_mb"] for run in of)),
            "settings": changes(kind)["optimizer"],
            # Of the mean over the seeds: seconds of training, nats per token.
            "curve": [
                [round(points[0][0] / speeds[kind], 2), round(statistics.mean(loss for _, loss in points), 4)]
                for points in zip(*(run["curve"] for run in of), strict=True)
            ],
        }
    return {"seconds": chosen.seconds, "seeds": chosen.seeds, "kinds": found}


def draw(report: Report) -> None:
    drawing = figures.figure(7, 4)
    axes = drawing.subplots()
    colors = figures.colors(report["kinds"])
    for kind in sorted(colors, key=lambda kind: -report["kinds"][kind]["bits_per_byte"]):
        seconds, losses = zip(*report["kinds"][kind]["curve"], strict=True)
        bits = report["kinds"][kind]["bits_per_byte"]
        axes.plot(seconds, losses, color=colors[kind], label=f"{kind}: {bits:.3f} bits per byte at the end")
    axes.set(xlabel="seconds of training", ylabel="training loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="upper right")
    FIGURE.write_bytes(figures.png(drawing))


def sweep(directory: Path, data: DataConfig, chosen: argparse.Namespace) -> None:
    speeds = tokens_per_second(directory, data, chosen.kinds, chosen.turns)
    for kind in chosen.kinds:
        for multiple in chosen.sweep:
            job = Job(f"{kind}-{multiple:.3g}", chosen.seeds[0], int(chosen.seconds * speeds[kind]))
            trained(directory, data, job, changes(kind, multiple))


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", type=Path)
    options.add_argument("--seconds", type=float, default=45)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument(
        "--turns", type=int, default=20, help="steps of each kind that are timed, from 10 on"
    )
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument("--sweep", type=float, nargs="*", help="multiples of the learning rates")
    options.add_argument("--no-record", action="store_true", help="only print the report")
    options.add_argument("--pace", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    directory = chosen.directory.absolute()
    if chosen.pace:
        paced(chosen.pace)
        return
    data = prepare(directory).data
    if chosen.sweep is not None:
        chosen.sweep = chosen.sweep or MULTIPLES
        sweep(directory, data, chosen)
        return
    report = compared(directory, data, chosen)
    if chosen.no_record:
        print(json.dumps(report, indent=2))
    else:
        draw(report)
        record("optimizers", report, ("torch", "torchao", "lion-pytorch"))


if __name__ == "__main__":
    main()
