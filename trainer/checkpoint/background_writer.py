"""Writes checkpoints in a thread: training waits only for the copy, and for the previous checkpoint."""

import errno
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError

from trainer.checkpoint import publish as store
from trainer.parallel.world import World
from trainer.system.durable import unpublished
from trainer.system.errors import TrainerError

log = logging.getLogger("trainer")


class CheckpointWriter:
    """Publishes one checkpoint at a time; once it is committed, calls `announce` with it in the caller's
    thread.

    If the model is split, each process of the `world` has a writer: all write into the same directory, and
    the main process publishes it.
    """

    def __init__(self, announce: Callable[[Path], None], world: World) -> None:
        self._announce, self._world = announce, world
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._saving: Future[Path] | None = None

    def save(self, checkpoint: Path, write: Callable[[Path], None], retire: Callable[[Path], None]) -> None:
        """Starts to publish what `write` puts into a directory, and then to `retire` older checkpoints. Call
        `wait` first: only one may be in flight.
        """
        if self._saving is not None:
            raise RuntimeError("a checkpoint is in flight")
        self._saving = self._pool.submit(self._publish, checkpoint, write, retire)

    def poll(self) -> None:
        """Announces a checkpoint that was committed since. Raises TrainerError if it could not be written."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the checkpoint in flight, then does as `poll`."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            self._announce(saving.result())

    def close(self) -> None:
        """Waits for the checkpoint in flight, which only the next run announces."""
        self._pool.shutdown(wait=True)
        if self._saving is not None and (error := self._saving.exception()):
            log.warning("%s", error)

    def _publish(
        self, checkpoint: Path, write: Callable[[Path], None], retire: Callable[[Path], None]
    ) -> Path:
        try:
            if self._world.is_main:
                store.publish(checkpoint, lambda directory: self._write_together(directory, write))
                retire(checkpoint)
            else:
                self._write_together(unpublished(checkpoint), write)
        except (OSError, SafetensorError) as error:
            full = isinstance(error, SafetensorError) or error.errno in (None, errno.ENOSPC, errno.EDQUOT)
            remedy = "free some space" if full else "see to it that it can be written"
            raise TrainerError(
                f"{checkpoint}: cannot be saved ({error}). Earlier checkpoints are intact: {remedy} and run "
                "again to resume"
            ) from error
        return checkpoint

    def _write_together(self, directory: Path, write: Callable[[Path], None]) -> None:
        """Returns when all processes have written. Raises OSError if one failed."""
        background = self._world.background
        if background is None:
            write(directory)
            return
        dist.barrier(background)  # by now the main process has made the directory
        failed = torch.ones(1)
        try:
            write(directory)
            failed.zero_()
        finally:
            dist.all_reduce(failed, group=background)
        if failed.item():
            raise OSError("another process could not write its part")
