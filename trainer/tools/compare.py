"""`python -m trainer compare RUN...`: final figures of several runs, settings that differ, and curves."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from trainer.run.plot import running_mean
from trainer.run.run_directory import RunDirectory
from trainer.system.durable import read_json_lines, write_atomically
from trainer.system.errors import TrainerError
from trainer.system.figures import figure, png
from trainer.tools.tables import table

NOT_COMPARED = ("run_dir", "lineage")  # these do not change how a run is trained
LONGEST_CELL = 40


@dataclass(frozen=True)
class History:
    """The records of a run directory. Arrays have one entry for each logged step.

    `losses` are running means over about a fortieth of the run; `seconds` are the time in steps so far,
    without evaluations and checkpoints.
    """

    name: str
    settings: dict[str, str]
    max_tokens: int
    tokens: np.ndarray
    seconds: np.ndarray
    losses: np.ndarray
    tokens_per_second: float
    evaluations: list[dict[str, Any]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer compare",
        description="Compare runs: final figures, settings that differ, curves.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument(
        "--plot", type=Path, default=Path("compare.png"), metavar="FILE.png", help="default: compare.png"
    )
    options = parser.parse_args(arguments)
    compare(options.runs, options.plot)
    return 0


def compare(runs: Sequence[Path], plot: Path) -> None:
    """Prints the tables and draws the curves. Raises TrainerError for a directory without a run."""
    histories = [history(run, name) for run, name in zip(runs, _names(runs), strict=True)]
    print(figures(histories))
    if differing := differences(histories):
        print(f"\n{differing}")
    draw(histories, plot)
    print(f"\nCurves: {plot}")


def history(run: Path, name: str) -> History:
    """Reads a run directory. Raises TrainerError when it has no configuration or no finished step."""
    directory = RunDirectory(run)
    records = read_json_lines(directory.metrics)
    train = [record for record in records if record["kind"] == "train"]
    if not train:
        raise TrainerError(
            f"{run}: {directory.metrics.name} has no steps: not a run directory, or its run has not begun"
        )
    try:
        config = yaml.safe_load(directory.config.read_text(encoding="utf-8"))
        max_tokens = config["training"]["max_tokens"]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
        raise TrainerError(
            f"{directory.config}: cannot be read as the configuration of a run: {error}"
        ) from error
    tokens = np.array([record["tokens"] for record in train])
    speeds = np.array([record["tokens_per_second"] for record in train])
    return History(
        name=name,
        settings=_settings(config),
        max_tokens=max_tokens,
        tokens=tokens,
        seconds=np.cumsum(np.diff(tokens, prepend=0) / speeds),
        losses=running_mean(np.array([record["loss"] for record in train]), span=max(1.0, len(train) / 40)),
        tokens_per_second=float(np.median(speeds)),
        evaluations=[record for record in records if record["kind"] == "evaluation"],
    )


def figures(histories: Sequence[History]) -> str:
    """The table of final figures, one run a row."""
    header = (
        "run",
        "tokens",
        "done",
        "training loss",
        "validation loss",
        "bits per byte",
        "tokens/s",
        "seconds",
    )
    rows = []
    for run in histories:
        last = run.evaluations[-1] if run.evaluations else None
        validation = (f"{last['loss']:.4f}", f"{last['bits_per_byte']:.4f}") if last else ("-", "-")
        progress = (f"{run.tokens[-1]:,}", f"{run.tokens[-1] / run.max_tokens:.0%}", f"{run.losses[-1]:.4f}")
        rows.append(
            (run.name, *progress, *validation, f"{run.tokens_per_second:,.0f}", f"{run.seconds[-1]:,.1f}")
        )
    return table(header, rows)


def differences(histories: Sequence[History]) -> str:
    """The table of settings that differ between runs, one setting a row; empty when none does."""
    keys = sorted({key for run in histories for key in run.settings})
    values = {key: [run.settings.get(key, "-") for run in histories] for key in keys}
    rows = [(key, *map(_short, row)) for key, row in values.items() if len(set(row)) > 1]
    return table(("setting", *(run.name for run in histories)), rows) if rows else ""


def draw(histories: Sequence[History], path: Path) -> None:
    """Draws the loss over tokens and over time."""
    drawing = figure(12, 5)
    over_tokens, over_time = drawing.subplots(1, 2, sharey=True)
    for run in histories:
        evaluated = [record["tokens"] for record in run.evaluations]
        validation = [record["loss"] for record in run.evaluations]
        for axes, steps in ((over_tokens, run.tokens / 1e6), (over_time, run.seconds / 60)):
            (line,) = axes.plot(steps, run.losses, linewidth=1.4, label=run.name)
            points = np.interp(evaluated, run.tokens, steps)
            axes.plot(points, validation, "o", color=line.get_color(), markersize=4)
            axes.grid(alpha=0.25)
    title = "line: running mean in training, dots: validation"
    over_tokens.set(xlabel="million tokens", ylabel="loss (nats per token)", title=title)
    over_time.set(xlabel="minutes in steps")
    over_tokens.legend(frameon=False, fontsize=8)
    write_atomically(path, png(drawing))


def _names(runs: Sequence[Path]) -> list[str]:
    """The names of the directories or, where two are equal, the paths below their common parent."""
    paths = [run.resolve() for run in runs]
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    return [os.path.relpath(path, os.path.commonpath(paths)) for path in paths]


def _settings(config: dict[str, Any]) -> dict[str, str]:
    """The settings that decide how a run is trained, by their full keys.

    Paths are left out where a hash identifies their content: `tokenizer_sha256`, or `content` of a corpus.
    """
    settings = _flat("", {part: inner for part, inner in config.items() if part not in NOT_COMPARED})
    paths = {"data.tokenizer"}
    for key, value in settings.items():
        if key.endswith(".content") and value != "null":
            paths |= {key.removesuffix("content") + split for split in ("train", "validation")}
    return {key: value for key, value in settings.items() if key not in paths}


def _flat(key: str, value: Any) -> dict[str, str]:
    """`{"a": {"b": 1}}` to `{"a.b": "1"}`; list entries that have a `name` are keyed by it."""
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        value = {
            item["name"]: {name: inner for name, inner in item.items() if name != "name"} for item in value
        }
    if not isinstance(value, dict) or not value:
        return {key: value if isinstance(value, str) else json.dumps(value)}
    flat: dict[str, str] = {}
    for name, inner in value.items():
        flat |= _flat(f"{key}.{name}" if key else name, inner)
    return flat


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"...{text[3 - LONGEST_CELL :]}"
