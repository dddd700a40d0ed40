"""A run's directory: its paths, and the lock that lets only one trainer use it."""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from trainer.system.durable import is_full
from trainer.system.errors import TrainerError

LOCK_PATIENCE_SECONDS = 60.0

log = logging.getLogger("trainer")


class RunDirectory:
    """Where the files of a run are. `RunConfig` says what to train, `RunHistory` what has been trained."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.loss_curve = path / "loss.png"
        self.tensorboard = path / "tensorboard"
        self.sinks = path / "sinks.json"
        self.log = path / "log.txt"
        self.profile = path / "profile"
        self.checkpoints = path / "checkpoints"
        self.keep = path / "keep.txt"

    @classmethod
    def of(cls, checkpoint: Path) -> Self:
        """The directory of the run of a checkpoint."""
        return cls(checkpoint.parents[1])

    def checkpoint(self, step: int) -> Path:
        """The directory of the checkpoint of a step."""
        return self.checkpoints / f"step-{step:08d}"

    def pinned(self) -> set[str]:
        """The names of the checkpoints that nothing may remove: `python -m pipeline keep` lists them."""
        return set(self.keep.read_text(errors="replace").split()) if self.keep.exists() else set()

    @contextmanager
    def writable(self) -> Iterator[Self]:
        """Raises TrainerError if the disk is full, or any file of the run cannot be written."""
        try:
            yield self
        except OSError as error:
            if is_full(error):
                raise TrainerError(
                    f"{self.path}: {error.strerror}; checkpoints are intact. Free some space and run again "
                    "to resume"
                ) from error
            if not error.filename or not Path(os.fsdecode(error.filename)).is_relative_to(self.path):
                raise
            if not self.path.exists():
                raise TrainerError(
                    f"{self.path}: removed while the run trained, with its checkpoints; run again to start "
                    "over"
                ) from error
            raise TrainerError(
                f"{os.fsdecode(error.filename)}: {error.strerror}: this file of the run cannot be written. "
                "Make it writable and run again to resume"
            ) from error

    @contextmanager
    def locked(self, patience_seconds: float = LOCK_PATIENCE_SECONDS) -> Iterator[None]:
        """Locks the directory. Waits `patience_seconds` for a trainer that is still saving, then raises
        TrainerError.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a")
        except OSError as error:
            raise TrainerError(f"run_dir {self.path} is not writable: {error.strerror}") from error
        deadline, logged = time.monotonic() + patience_seconds, False
        with lock as file:
            while not try_lock(file.fileno()):
                if not logged:
                    waiting = f"waiting {patience_seconds:.0f} s for it to exit"
                    log.info(f"{self.path}: another trainer is using this run directory; {waiting}")
                    logged = True
                if time.monotonic() > deadline:
                    raise TrainerError(
                        f"{self.path}: another trainer is using this run directory. Wait for it, stop it, or "
                        "use another run_dir. Only torchrun makes several processes one training"
                    )
                time.sleep(0.2)
            yield


def with_present_places(config: Any, file: Path) -> Any:
    """The configuration that a store wrote to `file`, and which names files by their whole paths. Where the
    store was moved or copied since, those below it are named where they are now.
    """
    here = file.absolute().parent
    is_of_a_store = isinstance(config, dict) and config.get("lineage")
    was = Path(str(config.get("run_dir"))) if is_of_a_store else here
    if was == here or was.parts[-2:] != here.parts[-2:] or not was.is_absolute():
        return config
    old, new = was.parents[1], here.parents[1]

    def placed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: placed(one) for key, one in value.items()}
        if isinstance(value, list):
            return [placed(one) for one in value]
        if not isinstance(value, str) or not Path(value).is_relative_to(old):
            return value
        there = new / Path(value).relative_to(old)
        stayed = Path(value).parent.exists() and not there.parent.exists()  # files beside the store
        return value if stayed else str(there)

    return config | {key: placed(config.get(key)) for key in ("data", "training")}


def try_lock(descriptor: int) -> bool:
    """Locks an open file or directory, without waiting. Whether nobody else holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
