"""`python -m trainer compare RUN...`: final figures of several runs, settings that differ, and curves."""

import argparse
import json
import os
import re
import textwrap
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
from trainer.system.perplexity import perplexity
from trainer.tools.held_out_text import HeldOutText, letters
from trainer.tools.named import run_named
from trainer.tools.tables import table, terminal_width, width

NOT_COMPARED = ("run_dir", "lineage")  # these do not change how a run is trained
LONGEST_CELL = 40
# Columns that are left out, in this order, until the table fits.
DISPENSABLE = ("tokens/s", "seconds", "done", "train loss", "perplexity")
HASH, SHOWN_OF_HASH = re.compile(r"[0-9a-f]{32,}"), 12
FINGERPRINT, SHOWN_OF_FINGERPRINT = re.compile(r"[0-9a-f]{16}"), 8  # a run of the store, as the UI names it


@dataclass(frozen=True)
class History:
    """The records of a run directory. Arrays have one entry for each logged step.

    `losses` are running means over about a fortieth of the run; `seconds` are the time in steps so far,
    without evaluations and checkpoints.
    """

    name: str
    settings: dict[str, str]
    held_out: HeldOutText
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
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a run directory, or the name of a run (6ddca120) or of a checkpoint (6ddca120-00000020) in the "
        "UI; of a checkpoint, the run up to its step",
    )
    parser.add_argument(
        "--plot", type=Path, default=Path("compare.png"), metavar="FILE.png", help="default: compare.png"
    )
    options = parser.parse_args(arguments)
    compare(options.runs, options.plot)
    return 0


def compare(runs: Sequence[str | Path], plot: Path) -> None:
    """Prints the tables and draws the curves. Raises TrainerError for a directory without a run, and for
    another file than a picture in the place of the plot.
    """
    if plot.suffix != ".png":
        raise TrainerError(f"--plot {plot}: the curves are a PNG picture, name a file that ends in .png")
    found = [run_named(str(run)) for run in runs]
    named = zip(found, _names(found), strict=True)
    histories = [history(run, name, step) for (run, step), name in named]
    columns = terminal_width()
    numbers = [str(number) for number in range(1, len(histories) + 1)]
    names = [run.name for run in histories]
    if max(map(len, names)) > columns // 3:
        print("\n".join(f"{number}  {name}" for number, name in zip(numbers, names, strict=True)), end="\n\n")
        names = numbers
    print(figures(histories, names, columns))
    for remark in remarks(histories):
        print(textwrap.fill(remark, columns))
    if differing := differences(histories, names, columns):
        print(f"\n{differing}")
    try:
        draw(histories, plot)
    except OSError as error:
        raise TrainerError(
            f"{plot}: the curves cannot be written there ({error.strerror}): name another file with --plot"
        ) from error
    print(f"\nCurves: {plot}")


def history(run: Path, name: str, until_step: int | None = None) -> History:
    """Reads a run directory, up to a step. Raises TrainerError when it has no configuration or no finished
    step.
    """
    directory = RunDirectory(run)
    records = [
        record
        for record in read_json_lines(directory.metrics)
        if until_step is None or record["step"] <= until_step
    ]
    train = [record for record in records if record["kind"] == "train"]
    if not train:
        raise TrainerError(
            f"{run}: {directory.metrics.name} has no steps: not a run directory, or its run has not begun"
        )
    try:
        config = yaml.safe_load(directory.config.read_text(encoding="utf-8"))
        max_tokens = config["training"]["max_tokens"]
        held_out = HeldOutText.of(config)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise TrainerError(
            f"{directory.config}: cannot be read as the configuration of a run: {error}"
        ) from error
    tokens = np.array([record["tokens"] for record in train])
    speeds = np.array([record["tokens_per_second"] for record in train])
    return History(
        name=name,
        settings=_settings(config),
        held_out=held_out,
        max_tokens=max_tokens,
        tokens=tokens,
        seconds=np.cumsum(np.diff(tokens, prepend=0) / speeds),
        losses=running_mean(
            np.array([record["loss"] for record in train], dtype=np.float64), span=max(1.0, len(train) / 40)
        ),
        tokens_per_second=float(np.median(speeds)),
        evaluations=[
            record for record in records if record["kind"] == "evaluation" and record["loss"] is not None
        ],
    )


def figures(histories: Sequence[History], names: Sequence[str], columns: int) -> str:
    """The table of final figures, one run a row, without columns that do not fit."""
    rows = [_figures(run, name) for run, name in zip(histories, names, strict=True)]
    texts, tokenizers = letters([run.held_out for run in histories]), _tokenizers(histories)
    for row, text, tokenizer in zip(rows, texts, tokenizers, strict=True):
        row |= {"text": text} if len(set(texts)) > 1 else {}
        row |= {"tokenizer": tokenizer[:SHOWN_OF_FINGERPRINT]} if len(set(tokenizers)) > 1 else {}
    shown = list(rows[0])
    left_out = []
    for column in (None, *DISPENSABLE):
        if column is not None:
            shown.remove(column)
            left_out.append(column)
        drawn = table(shown, [[row[name] for name in shown] for row in rows])
        if width(drawn) <= columns:
            break
    note = f"Left out to fit {columns} columns: {', '.join(left_out)}"
    return f"{drawn}\n{textwrap.fill(note, columns)}" if left_out else drawn


def _figures(run: History, name: str) -> dict[str, str]:
    last = run.evaluations[-1] if run.evaluations else None
    return {
        "run": name,
        "tokens": f"{run.tokens[-1]:,}",
        "done": f"{run.tokens[-1] / run.max_tokens:.0%}",
        "train loss": f"{run.losses[-1]:.4f}",
        "val loss": f"{last['loss']:.4f}" if last else "-",
        "perplexity": f"{perplexity(last['loss']):,.1f}" if last else "-",
        "bits/byte": f"{last['bits_per_byte']:.4f}" if last else "-",
        "tokens/s": f"{run.tokens_per_second:,.0f}",
        "seconds": f"{run.seconds[-1]:,.1f}",
    }


def remarks(histories: Sequence[History]) -> list[str]:
    """What must not be compared, a sentence or two for each reason."""
    found = []
    texts = dict(zip(letters([run.held_out for run in histories]), histories, strict=True))
    if len(texts) > 1:
        explained = "; ".join(f"{letter}: {run.held_out}" for letter, run in sorted(texts.items()))
        found.append(
            f"The held-out text differs ({explained}). Compare validation figures, bits per byte included, "
            "only between runs with the same letter."
        )
    if len(set(_tokenizers(histories))) > 1:
        found.append(
            "The tokenizers differ. Between them, losses and perplexities say nothing; bits per byte can be "
            "compared on the same text."
        )
    return found


def _tokenizers(histories: Sequence[History]) -> list[str]:
    return [run.held_out.tokenizer for run in histories]


def differences(histories: Sequence[History], names: Sequence[str], columns: int) -> str:
    """The settings that differ between runs, in a table or, where that does not fit, one below the other;
    empty when none does.
    """
    keys = sorted({key for run in histories for key in run.settings})
    values = {key: [run.settings.get(key, "-") for run in histories] for key in keys}
    different = {key: row for key, row in values.items() if len(set(row)) > 1}
    if not different:
        return ""
    rows = [(key, *(_short(value, LONGEST_CELL) for value in row)) for key, row in different.items()]
    drawn = table(("setting", *names), rows)
    if width(drawn) <= columns:
        return drawn
    longest = max(map(len, names))
    lines = ["settings that differ"]
    for key, row in different.items():
        room = max(columns - longest - 4, SHOWN_OF_HASH)
        told = (f"  {name:<{longest}}  {_short(value, room)}" for name, value in zip(names, row, strict=True))
        lines += [key, *told]
    return "\n".join(lines)


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


def _names(runs: Sequence[tuple[Path, int | None]]) -> list[str]:
    """The names of the directories, those of the store as in the UI; where two are equal, the paths below
    their common parent.
    """
    paths = [run.resolve() for run, _ in runs]
    shown = [
        path.name[:SHOWN_OF_FINGERPRINT] if FINGERPRINT.fullmatch(path.name) else path.name for path in paths
    ]
    names = _with_steps(shown, runs)
    if len(set(names)) == len(names):
        return names
    common = os.path.commonpath(paths)
    return _with_steps([os.path.relpath(path, common) for path in paths], runs)


def _with_steps(names: Sequence[str], runs: Sequence[tuple[Path, int | None]]) -> list[str]:
    """The names, of checkpoints with their step."""
    return [
        name if step is None else f"{name}-{step:08d}" for name, (_, step) in zip(names, runs, strict=True)
    ]


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


def _short(text: str, longest: int) -> str:
    """Hashes by their first digits. Of a path that is too long its end, of other text its beginning."""
    text = HASH.sub(lambda match: match[0][:SHOWN_OF_HASH], text)
    if len(text) <= longest:
        return text
    return f"...{text[3 - longest :]}" if "/" in text else f"{text[: longest - 3]}..."
