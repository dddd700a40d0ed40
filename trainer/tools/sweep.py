"""`python -m trainer sweep CONFIG.yaml key=v1,v2 ...`: a run for each combination of values, then compare.

Each sweep starts the trainer for every combination, with a run_dir of its own. The trainer resumes an
unfinished run, exits at once on a finished run, and refuses a directory whose settings or data have changed.
"""

import argparse
import itertools
import json
import logging
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trainer.config import load_run_config
from trainer.run.run_directory import RunDirectory
from trainer.system import launch
from trainer.system.durable import read_json_lines
from trainer.system.errors import TrainerError
from trainer.system.signals import StopSignals
from trainer.tools.compare import compare

DONE, FAILED, RESUMABLE = 0, 1, 75
POLL_SECONDS = 0.5

log = logging.getLogger("trainer")


class Trial(NamedTuple):
    """One combination: its name, the overrides for the trainer (`key=value`), and its run directory."""

    name: str
    overrides: list[str]
    run_dir: Path


def main(arguments: list[str]) -> int:
    """The exit status: 0 when all runs are done; 1 when a run failed, after the others; 75 when stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer sweep",
        description="Train every combination of the values, each below run_dir, and compare the runs. "
        "The same command resumes a sweep that was stopped.",
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml")
    parser.add_argument(
        "grid", nargs="+", metavar="key=v1,v2", help="for example training.optimizer.lr=1e-3,3e-3"
    )
    parser.add_argument("--processes", type=int, default=1, help="processes of each run; default: 1")
    options = parser.parse_args(arguments)
    directory = load_run_config(options.config).run_dir
    trials = combinations(options.config, directory, options.grid)
    failed = []
    for number, trial in enumerate(trials, start=1):
        log.info("run %d of %d: %s", number, len(trials), trial.name)
        status = _train([*launch.command(options.config, options.processes), *trial.overrides])
        if status == RESUMABLE:
            log.info("the sweep was stopped; the same command resumes it")
            return RESUMABLE
        if status != DONE:
            log.warning("%s failed with exit status %d", trial.name, status)
            failed.append(trial.name)
    if begun := [trial.run_dir for trial in trials if read_json_lines(RunDirectory(trial.run_dir).metrics)]:
        compare(begun, directory / "compare.png")
    if failed:
        print(f"\nFailed: {', '.join(failed)}")
    return FAILED if failed else DONE


def combinations(config: Path, directory: Path, grid: Sequence[str]) -> list[Trial]:
    """A trial for each combination. Its name has all values, so that a larger grid reuses the run.

    Raises TrainerError for a mistake in any combination, before a run starts.
    """
    axes = [_axis(axis) for axis in grid]
    trials = []
    for values in itertools.product(*(values for _, values in axes)):
        chosen = [(key, _text(value)) for (key, _), value in zip(axes, values, strict=True)]
        name = ",".join(f"{key.removeprefix('training.')}={text}" for key, text in chosen)
        run_dir = directory / re.sub(r"[^\w.,=+-]", "_", name)
        overrides = [*(f"{key}={text}" for key, text in chosen), f"run_dir={run_dir}"]
        load_run_config(config, overrides)
        trials.append(Trial(run_dir.name, overrides, run_dir))
    if len({trial.name for trial in trials}) < len(trials):
        raise TrainerError(
            "two combinations of the sweep are the same: name each key once and each value once"
        )
    return trials


def _axis(text: str) -> tuple[str, list[Any]]:
    key, separator, values = text.partition("=")
    try:
        parsed = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError as error:
        raise TrainerError(f"{text!r}: the values cannot be read as YAML: {error}") from error
    if not separator or not key or not parsed:
        raise TrainerError(f"{text!r} is not of the form key.subkey=value1,value2")
    return key, parsed


def _text(value: Any) -> str:
    """Text that YAML parses to the same value. (It parses 1e-3 as a string, which pydantic converts.)"""
    return value if isinstance(value, str) else json.dumps(value)


def _train(command: Sequence[str]) -> int:
    """Runs the trainer and returns its exit status. Forwards a stop signal and waits for the checkpoint."""
    with StopSignals() as stop, subprocess.Popen(command) as trainer:
        while trainer.poll() is None and not stop.received:
            time.sleep(POLL_SECONDS)
        if stop.received:
            trainer.terminate()
        status = trainer.wait()
    return RESUMABLE if stop.received else status
