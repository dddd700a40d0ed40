"""`python -m trainer compare RUN...`: the curves of several runs on one plot, their final figures, and what
differs in their settings.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from trainer.run.metrics import read
from trainer.run.plot import running_mean
from trainer.run.run_directory import RunDirectory
from trainer.system.errors import TrainerError
from trainer.tools.tables import table

# Where a run lives and what it was made from say nothing about how it was trained.
NOT_SETTINGS = ("run_dir", "lineage")
LONGEST_CELL = 40


@dataclass(frozen=True)
class History:
    """What a run directory tells. Arrays have one entry for each logged step; `seconds` is time spent in
    steps, without evaluating and saving.
    """

    name: str
    settings: dict[str, str]
    max_tokens: int
    tokens: np.ndarray
    seconds: np.ndarray
    losses: np.ndarray
    tokens_per_second: float
    evaluations: list[dict[str, Any]]

    def seconds_at(self, tokens: float) -> float:
        return float(np.interp(tokens, self.tokens, self.seconds))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer compare",
        description="Compare runs: final figures, differing settings, curves.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument(
        "--plot", type=Path, default=Path("compare.png"), metavar="FILE.png", help="default: compare.png"
    )
    options = parser.parse_args(arguments)
    compare(options.runs, options.plot)
    return 0


def compare(runs: Sequence[Path], plot: Path) -> None:
    """Prints the tables and draws the curves. TrainerError for a directory without a run."""
    names = _names(runs)
    histories = [history(run, name) for run, name in zip(runs, names, strict=True)]
    print(figures(histories))
    if differing := differences(histories):
        print(f"\n{differing}")
    draw(histories, plot)
    print(f"\nCurves: {plot}")


def history(run: Path, name: str) -> History:
    """Reads a run directory. TrainerError when it has no configuration or no step is done yet."""
    directory = RunDirectory(run)
    records = read(directory.metrics)
    train = [record for record in records if record["kind"] == "train"]
    if not train:
        raise TrainerError(
            f"{run}: no step is recorded in {directory.metrics.name}: not a run directory, or a run that has "
            "not begun"
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
        losses=np.array([record["loss"] for record in train]),
        tokens_per_second=float(np.median(speeds)),
        evaluations=[record for record in records if record["kind"] == "evaluation"],
    )


def figures(histories: Sequence[History]) -> str:
    """The table of final figures, one run a row."""
    rows = []
    for run in histories:
        last = run.evaluations[-1] if run.evaluations else None
        validated = (f"{last['loss']:.4f}", f"{last['bits_per_byte']:.4f}") if last else ("-", "-")
        done = f"{run.tokens[-1] / run.max_tokens:.0%}"
        speed, seconds = f"{run.tokens_per_second:,.0f}", f"{run.seconds[-1]:,.1f}"
        rows.append(
            (run.name, f"{run.tokens[-1]:,}", done, f"{_smooth(run)[-1]:.4f}", *validated, speed, seconds)
        )
    return table(
        ("run", "tokens", "done", "training loss", "validation loss", "bits per byte", "tokens/s", "seconds"),
        rows,
    )


def differences(histories: Sequence[History]) -> str:
    """The table of settings that are not the same in all runs, one setting a row; empty when there are
    none.
    """
    keys = sorted({key for run in histories for key in run.settings})
    values = {key: [run.settings.get(key, "-") for run in histories] for key in keys}
    rows = [(key, *map(_short, row)) for key, row in values.items() if len(set(row)) > 1]
    return table(("setting", *(run.name for run in histories)), rows) if rows else ""


def draw(histories: Sequence[History], path: Path) -> None:
    """The loss over tokens and over time: a line for the running mean in training, dots for validation."""
    # Matplotlib takes half a second to import, and only a drawing needs it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    over_tokens, over_time = figure.subplots(1, 2, sharey=True)
    minutes = max(run.seconds[-1] for run in histories) > 300
    for run in histories:
        evaluated = np.array([record["tokens"] for record in run.evaluations])
        validation = [record["loss"] for record in run.evaluations]
        unit = 60 if minutes else 1
        for axes, steps, points in (
            (over_tokens, run.tokens / 1e6, evaluated / 1e6),
            (over_time, run.seconds / unit, np.array([run.seconds_at(at) for at in evaluated]) / unit),
        ):
            (line,) = axes.plot(steps, _smooth(run), linewidth=1.4, label=run.name)
            axes.plot(points, validation, "o", color=line.get_color(), markersize=4)
    over_tokens.set(
        xlabel="million tokens", ylabel="loss (nats per token)", title="line: training, dots: validation"
    )
    over_time.set(xlabel="minutes in steps" if minutes else "seconds in steps")
    for axes in (over_tokens, over_time):
        axes.grid(alpha=0.25)
    over_tokens.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def _smooth(run: History) -> np.ndarray:
    return running_mean(run.losses, span=max(1.0, len(run.losses) / 40))


def _names(runs: Sequence[Path]) -> list[str]:
    """Names of the directories; where two are called the same, the paths from where they part."""
    paths = [run.resolve() for run in runs]
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    return [os.path.relpath(path, os.path.commonpath(paths)) for path in paths]


def _settings(config: dict[str, Any]) -> dict[str, str]:
    """What says how a run was trained, by its whole key; not where files lie whose content another
    setting names.
    """
    found = {
        key: value
        for part, inner in config.items()
        if part not in NOT_SETTINGS
        for key, value in _flat(part, inner).items()
    }
    known = {
        key.removesuffix(".content")
        for key, value in found.items()
        if key.endswith(".content") and value != "null"
    }
    places = {
        "data.tokenizer",
        *(f"{corpus}.{split}" for corpus in known for split in ("train", "validation")),
    }
    return {key: value for key, value in found.items() if key not in places}


def _flat(key: str, value: Any) -> dict[str, str]:
    """`{"a": {"b": 1}}` to `{"a.b": "1"}`; the entries of a list that have names are keyed by them."""
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        value = {
            item["name"]: {inner: one for inner, one in item.items() if inner != "name"} for item in value
        }
    if isinstance(value, dict) and value:
        return {
            inner: text
            for name, item in value.items()
            for inner, text in _flat(f"{key}.{name}", item).items()
        }
    return {key: value if isinstance(value, str) else json.dumps(value)}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"...{text[3 - LONGEST_CELL :]}"
