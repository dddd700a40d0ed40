"""Saving beside training, which waits only for a copy of its state in host memory, and for the previous
checkpoint. A thread writes the copy.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError

from trainer.checkpoint import publish
from trainer.model.llama import Llama
from trainer.parallel.pipeline_parallel import whole_parameters
from trainer.parallel.world import World
from trainer.system.durable import is_full, unpublished
from trainer.system.errors import TrainerError

log = logging.getLogger("trainer")


class Staging:
    """Buffers as large as what is saved, allocated once and reused; pinned for tensors on a GPU."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}
        self._model: Llama | None = None

    def copy(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Copies named tensors. The copies are valid until the next call."""
        copied, on_gpu = {}, False
        for name, tensor in tensors:
            if name not in self._held:
                self._held[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            copied[name] = self._held[name].copy_(tensor.detach(), non_blocking=True)
            on_gpu |= tensor.is_cuda
        if on_gpu:
            torch.cuda.synchronize()
        return copied

    def model(self, model: Llama, world: World) -> Llama | None:
        """Copies the model to host memory, in the main process. A collective if the model is split."""
        weights = whole_parameters(model)
        if not world.is_main:
            deque(weights, maxlen=0)
            return None
        copied = self.copy(weights)
        if self._model is None:
            with torch.device("meta"):
                self._model = Llama(model.config, model.vocab_size, model.max_length, model.model.backend)
            self._model.materialize(torch.device("cpu"))
            self._model.context = model.context
        for name, parameter in self._model.named_parameters():
            parameter.data = copied[name]
        return self._model


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
                publish.publish(checkpoint, lambda directory: self._write_together(directory, write))
                retire(checkpoint)
            else:
                self._write_together(unpublished(checkpoint), write)
        except (OSError, SafetensorError) as error:
            # What another process could not write has no number.
            full = is_full(error) or getattr(error, "errno", None) is None
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
