"""`python -m trainer sweep CONFIG.yaml key=v1,v2 ...`: a run for each combination of a few values, and their
comparison.
"""

import argparse
import itertools
import json
import logging
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainer.checkpoint.state import differences, read_state
from trainer.checkpoint.store import CheckpointError, directory_for
from trainer.config import OPERATIONAL, RunConfig, load_run_config, run_identity
from trainer.run import preflight
from trainer.run.metrics import read
from trainer.run.run_directory import RunDirectory
from trainer.system import launch
from trainer.system.errors import TrainerError
from trainer.system.signals import StopSignals
from trainer.tools.compare import compare

DONE, FAILED, RESUMABLE = 0, 1, 75
POLL_SECONDS = 0.5

log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Trial:
    """One combination: its name, what it changes (`key=value`, as the trainer takes it), and the run that
    it is.
    """

    name: str
    overrides: list[str]
    config: RunConfig

    @property
    def last_checkpoint(self) -> Path:
        return directory_for(RunDirectory(self.config.run_dir).checkpoints, self.config.training.steps)

    def changed(self, contents: dict[str, str]) -> list[str]:
        """What differs from what its last checkpoint was made with. `contents` of the shards, by corpus.
        CheckpointError for a damaged one.
        """
        made_by = load_run_config(RunDirectory(self.config.run_dir).config)
        made_with, wanted = (
            config.training.model_dump(mode="json", exclude=OPERATIONAL) for config in (made_by, self.config)
        )
        # A run writes down what its `auto` became.
        wanted |= {key: made_with[key] for key, value in wanted.items() if value == "auto"}
        data = run_identity(self.config, self.config.training.precision, contents)["data"]
        return [
            *differences(made_with, wanted, "training"),
            *differences(read_state(self.last_checkpoint)["meaning"]["data"], data, "data"),
        ]


def main(arguments: list[str]) -> int:
    """The exit status: 0 all done, 1 when a run failed (the others are done), 75 stopped on request; the same
    command goes on.
    """
    parser = argparse.ArgumentParser(
        prog="python -m trainer sweep",
        description="Train every combination of the values, below run_dir, and compare. Goes on where it was "
        "stopped.",
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml")
    parser.add_argument(
        "grid", nargs="+", metavar="key=v1,v2", help="for example training.optimizer.lr=1e-3,3e-3"
    )
    parser.add_argument("--processes", type=int, default=1, help="processes of each run; default: 1")
    options = parser.parse_args(arguments)
    directory = load_run_config(options.config).run_dir
    trials = combinations(options.config, directory, options.grid)
    done = finished(trials)
    failed = []
    for number, trial in enumerate(trials, start=1):
        if trial.name in done:
            log.info("run %d of %d: %s is done", number, len(trials), trial.name)
            continue
        log.info("run %d of %d: %s", number, len(trials), trial.name)
        status = _train(options.config, trial, options.processes)
        if status == RESUMABLE:
            log.info("stopped; the same command goes on")
            return RESUMABLE
        if status != DONE:
            log.warning("%s failed with exit status %d", trial.name, status)
            failed.append(trial.name)
    begun = [trial.config.run_dir for trial in trials if read(RunDirectory(trial.config.run_dir).metrics)]
    if begun:
        compare(begun, directory / "compare.png")
    if failed:
        print(f"\nFailed: {', '.join(failed)}")
    return FAILED if failed else DONE


def combinations(config: Path, directory: Path, grid: Sequence[str]) -> list[Trial]:
    """A trial for each combination, checked before any starts (TrainerError). Its name says it all, so that a
    larger grid finds it again.
    """
    axes = [_axis(axis) for axis in grid]
    trials = []
    for values in itertools.product(*(values for _, values in axes)):
        chosen = [(key, value) for (key, _), value in zip(axes, values, strict=True)]
        name = ",".join(f"{key.removeprefix('training.')}={_text(value)}" for key, value in chosen)
        name = re.sub(r"[^\w.,=+-]", "_", name)
        overrides = [*(f"{key}={_text(value)}" for key, value in chosen), f"run_dir={directory / name}"]
        trials.append(Trial(name, overrides, load_run_config(config, overrides)))
    if len({trial.name for trial in trials}) < len(trials):
        raise TrainerError(
            "two combinations of the sweep are the same: name each key once and each value once"
        )
    return trials


def finished(trials: Sequence[Trial]) -> list[str]:
    """The names of those whose last checkpoint is there. TrainerError when it is of other settings or data.

    Shards that do not say what their `content` is are read for that, once.
    """
    done, known = [], dict[str, dict[str, str]]()
    for trial in trials:
        if not trial.last_checkpoint.is_dir():
            continue
        data = trial.config.data.model_dump_json()
        if data not in known:
            known[data] = preflight.contents(trial.config)
        try:
            changed = trial.changed(known[data])
        except CheckpointError:
            continue  # the trainer says so, and makes it again
        if changed:
            raise TrainerError(
                f"{trial.config.run_dir}: was trained with other settings than it would be now "
                f"({'; '.join(changed)}); "
                "choose another run_dir, or remove it"
            )
        done.append(trial.name)
    return done


def _axis(text: str) -> tuple[str, list[Any]]:
    key, separator, values = text.partition("=")
    try:
        found = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError as error:
        raise TrainerError(f"{text!r}: the values cannot be read as YAML: {error}") from error
    if not separator or not key or not found:
        raise TrainerError(f"{text!r} is not of the form key.subkey=value,value")
    return key, found


def _text(value: Any) -> str:
    """YAML reads it back as the same value. It takes 1e-3 for a string, which becomes a number where one is
    expected.
    """
    return value if isinstance(value, str) else json.dumps(value)


def _train(config: Path, trial: Trial, processes: int) -> int:
    """Runs the trainer; a wish to stop is passed on, and the trainer saves before it ends."""
    command = [*launch.command(config, processes), *trial.overrides]
    with StopSignals() as stop, subprocess.Popen(command) as trainer:
        asked = False
        while True:
            try:
                status = trainer.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if stop.received and not asked:
                    trainer.terminate()
                    asked = True
                continue
            return RESUMABLE if stop.received else status
