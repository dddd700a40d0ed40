"""When a run saves, and which of its checkpoints stay."""

import time
from functools import partial
from pathlib import Path

from trainer.checkpoint import store
from trainer.checkpoint.staging import Staging
from trainer.checkpoint.writer import CheckpointWriter
from trainer.run.recorder import Recorder
from trainer.run.run_directory import RunDirectory
from trainer.run.session import Session


class Saver:
    """Every process has one, so that all agree on when. The main one, which has a recorder, writes; where the
    model is split, all do.
    """

    def __init__(self, session: Session, directory: RunDirectory, recorder: Recorder | None) -> None:
        self._session, self._directory, self._recorder = session, directory, recorder
        announce = recorder.checkpoint if recorder is not None else _not_here
        writes = recorder is not None or session.world.mesh is not None
        self._writer = CheckpointWriter(announce, session.world) if writes else None
        self._staging = Staging()
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether a checkpoint follows the step just done. A collective."""
        session, wanted = self._session, self._session.training.checkpoint
        if wanted.every_minutes is not None and session.world.any(
            time.monotonic() - self._last >= 60 * wanted.every_minutes
        ):
            return True
        return session.is_complete or any(
            session.passes(every)
            for every in (wanted.every_tokens, wanted.keep_every_tokens)
            if every is not None
        )

    def save(self, whole: bool) -> None:
        """Returns when the state is copied and the checkpoint before is committed. `whole` overrules
        `model_only`.
        """
        self._last = time.monotonic()
        if self._writer is None:
            return
        session = self._session
        self._writer.wait()
        # The metrics must be on disk before a checkpoint that vouches for them.
        metrics_bytes = self._recorder.metrics.sync() if self._recorder is not None else 0
        snapshot = session.snapshot(
            self._staging, metrics_bytes, model_only=session.training.checkpoint.model_only and not whole
        )
        retire = partial(store.retire, keep_last=session.training.checkpoint.keep_last, stays=session.stays)
        self._writer.save(
            store.directory_for(self._directory.checkpoints, session.step), snapshot.write, retire
        )

    def poll(self) -> None:
        """Announces a checkpoint that has been committed. TrainerError when it could not be saved."""
        if self._writer is not None:
            self._writer.poll()

    def wait(self) -> None:
        """As `poll`, once all are committed, for every process."""
        if self._writer is not None:
            self._writer.wait()
        self._session.world.barrier()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _not_here(checkpoint: Path) -> None:
    """The main process announces checkpoints."""
