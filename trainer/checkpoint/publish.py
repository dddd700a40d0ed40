"""Publishes, verifies and finds checkpoints: `step-<8 digits>` with a manifest of sizes and sha256."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainer.system.durable import atomic_directory, read_json
from trainer.system.errors import TrainerError
from trainer.system.run_history import MANIFEST, OPTIMIZER_FILES, STEP


class CheckpointError(TrainerError):
    """A checkpoint is damaged or incomplete; the message names the file."""


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def publish(
    checkpoint: Path,
    write: Callable[[Path], None],
    expected: Mapping[str, dict[str, int | str]] = MappingProxyType({}),
) -> None:
    """Publishes a checkpoint atomically: `write` fills a temporary directory, the manifest is written last,
    everything is synced, and the directory is renamed. Replaces a damaged checkpoint of the same name.

    `expected`: what a manifest says of files that `write` takes from elsewhere. Raises CheckpointError with
    the first that differs; then nothing is published.
    """
    for leftover in checkpoint.parent.glob(".step-*.tmp"):
        shutil.rmtree(leftover)
    with atomic_directory(checkpoint) as temporary:
        write(temporary)
        files = {
            str(path.relative_to(temporary)): _fingerprint(path)
            for path in sorted(temporary.rglob("*"))
            if path.is_file()
        }
        for name, entry in expected.items():
            if files.get(name) != entry:
                raise CheckpointError(f"{name}: differs from its manifest (damaged)")
        (temporary / MANIFEST).write_text(
            json.dumps({"files": files}, indent=1, sort_keys=True), encoding="utf-8"
        )


def manifest(checkpoint: Path) -> dict[str, dict[str, int | str]]:
    """The `size` in bytes and the `sha256` of each file. Raises CheckpointError if it is unreadable."""
    return whole_manifest(checkpoint)["files"]


def whole_manifest(checkpoint: Path) -> dict[str, Any]:
    """All that the manifest says: also which files were dropped since. Raises as `manifest`."""
    try:
        content: dict[str, Any] = read_json(checkpoint / MANIFEST)
        files = content["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{checkpoint}: {MANIFEST} cannot be read ({error})") from error
    if not isinstance(files, dict):
        raise CheckpointError(f"{checkpoint / MANIFEST}: does not list files")
    return content


def optimizer_files(checkpoint: Path) -> list[Path]:
    """The files with the optimizer's state; none of a checkpoint of the model only. A file of such a name
    that the manifest does not list is none of the run's.
    """
    return [checkpoint / name for name in manifest(checkpoint) if fnmatch(name, OPTIMIZER_FILES)]


def verify(checkpoint: Path, beginnings: tuple[str, ...] = ("",)) -> None:
    """Reads every file whose name has one of the `beginnings`. Raises CheckpointError for a bad one."""
    for name, expected in manifest(checkpoint).items():
        if not name.startswith(beginnings):
            continue
        path = checkpoint / name
        if not path.is_file():
            raise CheckpointError(f"{path}: missing")
        if _fingerprint(path) != expected:
            raise CheckpointError(
                f"{path}: differs from its manifest (damaged or changed after it was saved)"
            )


def existing(checkpoints: Path) -> list[Path]:
    """Checkpoint directories from the oldest step to the newest, not verified."""
    if not checkpoints.is_dir():
        return []
    return sorted((path for path in checkpoints.iterdir() if STEP.fullmatch(path.name)), key=step_of)


def newest_valid(
    checkpoints: Path, check: Callable[[Path], None] = lambda checkpoint: None
) -> tuple[Path | None, list[str]]:
    """The newest undamaged checkpoint that `check` lets pass, and why newer ones were skipped."""
    skipped = []
    for checkpoint in reversed(existing(checkpoints)):
        try:
            verify(checkpoint)
            check(checkpoint)
        except CheckpointError as error:
            skipped.append(str(error))
        else:
            return checkpoint, skipped
    return None, skipped


def _fingerprint(path: Path) -> dict[str, int | str]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
