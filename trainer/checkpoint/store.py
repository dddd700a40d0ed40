"""Publishing, verifying, finding and retiring directories `step-<8 digits>` whose manifest holds the size and
sha256 of every file.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from trainer.system.durable import atomic_directory, unpublished

MANIFEST = "manifest.json"
NAME = re.compile(r"step-(\d{8,})")


class CheckpointError(Exception):
    """A checkpoint that is not what its manifest says; the message names the file."""


def directory_for(checkpoints: Path, step: int) -> Path:
    return checkpoints / f"step-{step:08d}"


def step_of(checkpoint: Path) -> int:
    match = NAME.fullmatch(checkpoint.name)
    if match is None:
        raise CheckpointError(f"{checkpoint}: a checkpoint is called step-<8 digits>")
    return int(match[1])


def publish(checkpoint: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary directory, makes it durable with a manifest written last, and gives it
    its name, replacing a broken one.
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
        (temporary / MANIFEST).write_text(
            json.dumps({"files": files}, indent=1, sort_keys=True), encoding="utf-8"
        )


def manifest(checkpoint: Path) -> dict[str, dict[str, int | str]]:
    """File names to `size` (bytes) and `sha256`. CheckpointError when there is no readable manifest."""
    try:
        files = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{checkpoint}: no readable {MANIFEST} ({error})") from error
    if not isinstance(files, dict):
        raise CheckpointError(f"{checkpoint / MANIFEST}: does not list files")
    return files


def verify(checkpoint: Path) -> None:
    """Reads every file back. CheckpointError names the first that is missing or differs."""
    for name, expected in manifest(checkpoint).items():
        path = checkpoint / name
        if not path.is_file():
            raise CheckpointError(f"{path}: missing")
        if _fingerprint(path) != expected:
            raise CheckpointError(
                f"{path}: differs from its manifest (damaged or changed after it was saved)"
            )


def existing(checkpoints: Path) -> list[Path]:
    """Checkpoint directories from the oldest step to the newest, verified or not."""
    if not checkpoints.is_dir():
        return []
    return sorted((path for path in checkpoints.iterdir() if NAME.fullmatch(path.name)), key=step_of)


def newest_valid(checkpoints: Path, check: Callable[[Path], None] = verify) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that passes `check`, which raises CheckpointError, and why newer ones were
    skipped.
    """
    skipped = []
    for checkpoint in reversed(existing(checkpoints)):
        try:
            check(checkpoint)
        except CheckpointError as error:
            skipped.append(str(error))
        else:
            return checkpoint, skipped
    return None, skipped


def retire(newest: Path, keep_last: int, stays: Callable[[int], bool] = lambda step: False) -> None:
    """Keeps `newest`, which has just been published, the `keep_last` - 1 before it, and those of the steps
    that `stays` names.

    What is later than `newest` (damaged, to be made again) stays.
    """
    until_newest = [
        checkpoint for checkpoint in existing(newest.parent) if step_of(checkpoint) <= step_of(newest)
    ]
    for checkpoint in (old for old in until_newest[:-keep_last] if not stays(step_of(old))):
        remove(checkpoint)


def remove(checkpoint: Path) -> None:
    # Renamed first: a kill in the middle of the removal must not leave half a checkpoint under its name.
    doomed = unpublished(checkpoint)
    shutil.rmtree(doomed, ignore_errors=True)  # what a kill left of another one
    checkpoint.rename(doomed)
    shutil.rmtree(doomed)


def data_version(checkpoint: Path) -> str:
    """sha256 over the names and hashes of the exported model's files: equal for equal models."""
    model = {name: entry["sha256"] for name, entry in manifest(checkpoint).items() if name.startswith("hf/")}
    return hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()


def _fingerprint(path: Path) -> dict[str, int | str]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
