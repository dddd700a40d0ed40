"""Which checkpoints of a run stay, and which of them keep the optimizer's state."""

import json
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from trainer.checkpoint.publish import CheckpointError, existing, optimizer_files, step_of, whole_manifest
from trainer.system.durable import sync, unpublished, write_atomically
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import DROPPED, MANIFEST, PUBLISHED, checkpoint_sha256


def retire(
    newest: Path,
    keep_last: int,
    stays: Callable[[int], bool] = lambda step: False,
    averaged: Collection[int] = (),
) -> None:
    """Removes checkpoints before `newest`, which was just published, except the last `keep_last` - 1, the
    steps for which `stays` is true, and those that are pinned. Leaves the model of `averaged` steps.

    Keeps checkpoints later than `newest`: they are damaged and will be replaced.
    """
    until_newest = [
        checkpoint for checkpoint in existing(newest.parent) if step_of(checkpoint) <= step_of(newest)
    ]
    pinned = RunDirectory.of(newest).pinned()
    for checkpoint in until_newest[:-keep_last]:
        step = step_of(checkpoint)
        if checkpoint.name in pinned or stays(step):
            continue
        if step in averaged:
            with suppress(CheckpointError):  # damaged: it stays as it is
                _drop_optimizer(checkpoint)
        else:
            remove(checkpoint)


def drop_optimizers(newest: Path, of_newest: bool) -> None:
    """Leaves of the checkpoints before `newest`, which is whole, only the model; with `of_newest` also of
    that one. Damaged checkpoints stay as they are.
    """
    for checkpoint in existing(newest.parent):
        if step_of(checkpoint) < step_of(newest) or (of_newest and checkpoint == newest):
            with suppress(CheckpointError):
                _drop_optimizer(checkpoint)


def _drop_optimizer(checkpoint: Path) -> None:
    # The manifest changes first, in one go. So a kill leaves a checkpoint that has all files that its
    # manifest lists, and perhaps files that it does not list, which the next call removes.
    content, names = whole_manifest(checkpoint), [path.name for path in optimizer_files(checkpoint)]
    dropped = [*content.get(DROPPED, []), *names]
    if names:
        files = {name: entry for name, entry in content["files"].items() if name not in names}
        changed = {DROPPED: dropped, PUBLISHED: checkpoint_sha256(checkpoint), "files": files}
        write_atomically(checkpoint / MANIFEST, json.dumps(changed, indent=1, sort_keys=True))
        sync(checkpoint)
    for name in dropped:
        (checkpoint / name).unlink(missing_ok=True)


def remove(checkpoint: Path) -> None:
    # Renamed first, so that a kill during the removal leaves no partial checkpoint under its name.
    doomed = unpublished(checkpoint)
    shutil.rmtree(doomed, ignore_errors=True)  # left by a killed process
    checkpoint.rename(doomed)
    shutil.rmtree(doomed)
