"""Finds runs, checkpoints and models by what a person has at hand: a path, or a name that the UI shows."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainer.checkpoint import store
from trainer.run.run_directory import RunDirectory
from trainer.system.errors import TrainerError

# `6ddca120` is a run, `6ddca120-00000020` one of its checkpoints.
NAME = re.compile(r"([0-9a-f]{4,})(?:[-/](\d{1,9}))?")
STEP = re.compile(r"step-(\d{8,})")
SHOWN, SHOWN_OF_PATH = 5, 60  # names, and characters of a path, in a message
KINDS = (
    "the directory of an exported model, of a checkpoint or of a run, or a name in the UI such as 6ddca120"
)


def runs_directory() -> Path:
    """Where the pipeline keeps its runs: `runs` in GROUNDWORK_STORE or in `store` of Dagster's home."""
    home = Path(os.environ.get("DAGSTER_HOME") or Path(__file__).parents[2] / "dagster_home")
    return Path(os.environ.get("GROUNDWORK_STORE") or home / "store").absolute() / "runs"


def run_named(text: str) -> tuple[Path, int | None]:
    """The directory of a run and, if a checkpoint is named, its step. A path that is nowhere in a run is
    returned as it is.

    Raises TrainerError for a name that no run or more than one has.
    """
    path = path_of(text)
    if not path.exists() and (name := NAME.fullmatch(text)):
        return _in_store(name[1]), int(name[2]) if name[2] else None
    absolute = path.absolute()
    step = next((STEP.fullmatch(part) for part in reversed(absolute.parts) if STEP.fullmatch(part)), None)
    places = [absolute, *list(absolute.parents)[:3]]
    run = next((place for place in places if RunDirectory(place).config.is_file()), path)
    return run, int(step[1]) if step else None


def model_named(text: str) -> Path:
    """The directory with `config.json` and weights: of a run, that of its newest checkpoint. Raises
    TrainerError when there is none, or more than one.
    """
    path = path_of(text)
    if not path.exists() and NAME.fullmatch(text):
        run, step = run_named(text)
        path = run if step is None else store.directory_for(RunDirectory(run).checkpoints, step)
        if not path.exists():
            saved = ", ".join(str(store.step_of(one)) for one in _checkpoints(run)) or "none"
            raise TrainerError(f"{text}: this checkpoint is not on disk; steps of the run that are: {saved}")
    if not path.exists():
        raise TrainerError(f"{text}: does not exist. Give {KINDS}")
    for place in _places(path):
        if (place / "config.json").is_file():
            return place
    inside = sorted(child.parent.name for child in path.glob("*/config.json"))
    hint = f"; it holds several: {', '.join(inside[-SHOWN:])}" if inside else ""
    raise TrainerError(f"{text}: no model is there{hint}. Give {KINDS}")


def checkpoint_named(text: str) -> Path:
    """As `model_named`, the directory of a checkpoint in a run. Raises TrainerError."""
    checkpoint = model_named(text).parent
    if not STEP.fullmatch(checkpoint.name):
        raise TrainerError(
            f"{text}: an exported model, without its held-out text. Give its run, or one of its checkpoints"
        )
    return checkpoint


def path_of(text: str) -> Path:
    """Raises TrainerError for text that the system takes for no path: too long, or with a NUL in it."""
    path = Path(text)
    try:
        path.exists()
    except (OSError, ValueError) as error:
        raise TrainerError(f"{text[:SHOWN_OF_PATH]!r} is not a path: {error}. Give {KINDS}") from None
    return path


def _places(path: Path) -> Iterator[Path]:
    """Where the model may be, seen from `path`."""
    directory = path.parent if path.is_file() else path
    yield directory
    yield directory / "hf"
    for run in (directory, directory.parent):
        if saved := _checkpoints(run):
            yield saved[-1] / "hf"
    models = [child.parent for child in directory.glob("*/config.json")]
    if len(models) == 1:
        yield models[0]


def _checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, the newest last."""
    saved = store.existing(RunDirectory(run).checkpoints)
    return [checkpoint for checkpoint in saved if (checkpoint / store.MANIFEST).is_file()]


def _in_store(beginning: str) -> Path:
    runs = runs_directory()
    known = sorted(path.parent for path in runs.glob("*/config.yaml"))
    found = [run for run in known if run.name.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    if found:
        raise TrainerError(f"{beginning!r} may be {' or '.join(run.name for run in found)}: add digits")
    newest = sorted(known, key=lambda run: run.stat().st_mtime)[-SHOWN:]
    names = ", ".join(run.name[:8] for run in newest) or "none"
    raise TrainerError(
        f"{beginning!r}: no run of this name in {runs} (GROUNDWORK_STORE names another store). "
        f"The newest runs: {names}"
    )
