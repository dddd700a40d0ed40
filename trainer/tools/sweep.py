"""`python -m trainer sweep CONFIG.yaml key=v1,v2 ...`: a run for each combination of values, then compare.

Each sweep starts the trainer for every combination, with a run_dir of its own. The trainer resumes an
unfinished run, exits at once on a finished run, and refuses a directory whose settings or data have changed.
A combination with the settings of the run that the sweep starts from, or of an earlier one, is that run.
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

import torch
import yaml

from trainer.checkpoint import store
from trainer.config import RunConfig, load_run_config, load_to_train
from trainer.model.attention import masks_documents
from trainer.run.run_directory import RunDirectory
from trainer.system import launch
from trainer.system.durable import read_json_lines, write_atomically
from trainer.system.errors import RESUMABLE, TrainerError
from trainer.system.signals import StopSignals
from trainer.tools.compare import compare
from trainer.tools.named import path_of, run_named, runs_directory

DONE, FAILED = 0, 1
POLL_SECONDS = 0.5
LENGTHS = ("max_tokens", "schedule", "checkpoint", "evaluation")  # settings that a duration decides

log = logging.getLogger("trainer")


class Trial(NamedTuple):
    """One combination: its name, the overrides for the trainer (`key=value`), and its run directory.

    `is_finished`: that of the run that the sweep starts from, which is compared and never written to.
    """

    name: str
    overrides: list[str]
    run_dir: Path
    is_finished: bool = False


def main(arguments: list[str]) -> int:
    """The exit status: 0 when all runs are done; 1 when a run failed, after the others; 75 when stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer sweep",
        description="Train every combination of the values, each below run_dir or, if that is a run already, "
        "beside it, and compare the runs. The same command resumes a sweep that was stopped.",
    )
    parser.add_argument(
        "config",
        metavar="CONFIG.yaml",
        help="a configuration of the trainer, a run (its directory, its config.yaml or its name in the UI), "
        "or a recipe of which the store has a run: the sweep reads that run's token shards",
    )
    parser.add_argument(
        "grid", nargs="+", metavar="key=v1,v2", help="for example training.optimizer.lr=1e-3,3e-3"
    )
    parser.add_argument("--processes", type=int, default=1, help="processes of each run; default: 1")
    options = parser.parse_args(arguments)
    config = configuration(options.config)
    run_dir = load_run_config(config).run_dir
    is_run = RunDirectory(run_dir).metrics.exists()
    directory = run_dir.with_name(f"{run_dir.name}-sweep") if is_run else run_dir
    trials = combinations(config, directory, options.grid, run_dir if is_run else None)
    failed = []
    for number, trial in enumerate(trials, start=1):
        log.info("run %d of %d: %s, in %s", number, len(trials), trial.name, trial.run_dir)
        if trial.is_finished:
            continue
        status = _train([*launch.command(config, options.processes), *trial.overrides])
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


def configuration(text: str) -> Path:
    """The configuration that a person means. Raises TrainerError when it is none."""
    path = path_of(text)
    if not path.is_file():
        path = RunDirectory(run_named(text)[0]).config
        if not path.is_file():
            raise TrainerError(
                f"{text}: neither a file nor a run. Give a configuration, a recipe's path, or a run: its "
                "directory or its name in the UI"
            )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return path  # load_run_config says what is wrong
    return _of_recipe(path, values) if isinstance(values, dict) and "corpora" in values else path


def _of_recipe(path: Path, recipe: dict[str, Any]) -> Path:
    """The configuration of the newest run of a recipe in the store, with the `training` section that the
    recipe has now.
    """
    runs = sorted(runs_directory().glob("*/config.yaml"), key=lambda config: config.stat().st_mtime)
    for config in reversed(runs):
        values = yaml.load(config.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        if values.get("lineage", {}).get("recipe", {}).get("name") == recipe.get("name"):
            log.info("%s: on the token shards of %s, the newest run of this recipe", path, config.parent)
            values["training"] = _training(recipe, values["training"])
            written = config.parent.with_name(f"{config.parent.name}-sweep") / "sweep.yaml"
            write_atomically(written, yaml.safe_dump(values, sort_keys=False))
            return written
    raise TrainerError(
        f"{path}: a recipe without a run in {runs_directory()}. Run the job `pretrain` once, which makes its "
        "token shards; then sweep the recipe, or its run"
    )


def _training(recipe: dict[str, Any], run: dict[str, Any]) -> Any:
    """The `training` section of a recipe, with the length of its run where the recipe gives it in minutes."""
    training = recipe.get("training")
    if not isinstance(training, dict) or "max_tokens" in training or "duration" not in recipe:
        return training
    return training | {name: run[name] for name in LENGTHS}


def combinations(config: Path, directory: Path, grid: Sequence[str], base: Path | None = None) -> list[Trial]:
    """A trial for each combination. Its name has all values, so that a larger grid reuses the run; a run with
    the same settings is reused whatever its name. `base`: the run that the sweep starts from.

    Raises TrainerError for a mistake in any combination, before a run starts.
    """
    axes = [_axis(axis) for axis in grid]
    known = {_settings(load_run_config(path)): path.parent for path in directory.glob("*/config.yaml")}
    finished = _settings_of_finished(base) if base is not None else None
    trials: dict[str, Trial] = {}
    for values in itertools.product(*(values for _, values in axes)):
        chosen = [(key, _text(value)) for (key, _), value in zip(axes, values, strict=True)]
        name = ",".join(f"{key.removeprefix('training.')}={text}" for key, text in chosen)
        run_dir = directory / re.sub(r"[^\w.,=+-]", "_", name)
        overrides = [f"{key}={text}" for key, text in chosen]
        settings = _settings(load_to_train(config, [*overrides, f"run_dir={run_dir}"]))
        if settings in trials:
            raise TrainerError(
                f"two combinations of the sweep are the same, {trials[settings].name} and {run_dir.name}: "
                "name each key once and each value once"
            )
        if settings == finished:
            assert base is not None
            trials[settings] = Trial(run_dir.name, overrides, base, is_finished=True)
        else:
            where = known.get(settings, run_dir)
            trials[settings] = Trial(run_dir.name, [*overrides, f"run_dir={where}"], where)
    return list(trials.values())


def _settings_of_finished(run: Path) -> str | None:
    """The settings of a run that is finished, else None."""
    saved = store.existing(RunDirectory(run).checkpoints)
    if not saved or not RunDirectory(run).config.is_file():
        return None
    config = load_run_config(RunDirectory(run).config)
    return _settings(config) if store.step_of(saved[-1]) == config.training.steps else None


def _settings(config: RunConfig) -> str:
    """Everything but the place of a run, as text; what `auto` stands for on this machine replaces it, as in
    the configuration that a run writes.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    masked = masks_documents(config.training.document_masking, device)
    training = config.training.model_copy(update={"document_masking": masked})
    resolved = config.model_copy(update={"training": training})
    settings = resolved.model_dump(mode="json", exclude={"run_dir", "lineage"})
    return json.dumps(settings, sort_keys=True)


def _axis(text: str) -> tuple[str, list[Any]]:
    key, separator, values = text.partition("=")
    try:
        parsed = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError as error:
        raise TrainerError(f"{text!r}: the values cannot be read as YAML: {error}") from error
    if not separator or not key or not parsed:
        raise TrainerError(f"{text!r} is not of the form key.subkey=value1,value2")
    if key == "run_dir":
        raise TrainerError(
            "a sweep gives each run a run_dir of its own, and cannot sweep over it: name a setting such as "
            "training.seed"
        )
    return key, parsed


def _text(value: Any) -> str:
    """Text that YAML parses to the same value. (It parses 1e-3 as a string, which pydantic converts.)"""
    return value if isinstance(value, str) else json.dumps(value)


def _train(command: Sequence[str]) -> int:
    """Runs the trainer and returns its exit status. Forwards a stop signal and waits for the checkpoint."""
    with StopSignals() as stop, subprocess.Popen(command) as trainer:
        stop.after_step()  # the trainer decides whether there is something to save
        while trainer.poll() is None and not stop.received:
            time.sleep(POLL_SECONDS)
        if stop.received:
            trainer.terminate()
        status = trainer.wait()
    return RESUMABLE if stop.received else status
