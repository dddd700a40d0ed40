"""When a run saves, and which of its checkpoints are kept."""

import logging
import time
from functools import partial
from pathlib import Path

from trainer.checkpoint import retention
from trainer.checkpoint.background import CheckpointWriter, Staging
from trainer.checkpoint.publish import CheckpointError
from trainer.config import CheckpointConfig
from trainer.run.records.dagster_pipes import Reporter, send_checkpoint
from trainer.run.records.recorder import NullRecorder
from trainer.run.session import Session
from trainer.system.errors import TrainerError
from trainer.system.run_directory import RunDirectory

log = logging.getLogger("trainer")


def drop_optimizers(wanted: CheckpointConfig, newest: Path, is_complete: bool) -> None:
    """Removes the optimizer's state from the checkpoints that shall not have it. `newest` is valid. If
    `is_complete`, it is the last one of the run, and no training needs its optimizer any more.
    """
    if wanted.optimizer != "all":
        retention.drop_optimizers(newest, of_newest=is_complete and wanted.optimizer == "none")


class Saver:
    """Decides when to save, alike in every process. The main process writes; where the model is split, all
    processes do.
    """

    def __init__(
        self, session: Session, directory: RunDirectory, recorder: NullRecorder, reporter: Reporter
    ) -> None:
        self._session, self._directory = session, directory
        self._recorder, self._reporter = recorder, reporter
        self._writes = session.world.is_main or session.world.mesh is not None
        self.writer = CheckpointWriter(self._announce, session.world)
        self._staging = Staging()
        self._last = time.monotonic()
        self._averaged = session.training.averaged_steps

    def is_due(self) -> bool:
        """Whether to save after the last step. A collective."""
        session, wanted = self._session, self._session.training.checkpoint
        if wanted.every_minutes is not None and session.world.any(
            time.monotonic() - self._last >= 60 * wanted.every_minutes
        ):
            return True
        return (
            session.is_complete
            or session.step in self._averaged
            or session.passes(wanted.every_tokens)
            or self._stays(session.step)
        )

    def save(self) -> None:
        """Saves the state. Returns once it is copied, and the previous checkpoint is committed."""
        self._last = time.monotonic()
        if not self._writes:
            return
        session = self._session
        self.writer.wait()
        # The checkpoint holds the length of the metrics, so they must be on disk before it.
        snapshot = session.snapshot(self._staging, self._recorder.sync())
        retire = partial(self._retire, session.is_complete)
        self.writer.save(self._directory.checkpoint(session.step), snapshot.write, retire)

    def _stays(self, step: int) -> bool:
        """Whether the state after `step` steps is kept for good, also for other runs."""
        wanted, curriculum = self._session.training.checkpoint, self._session.curriculum
        is_branch_point = wanted.keeps_branch_points and step in curriculum.branch_steps
        return is_branch_point or curriculum.passes(step, wanted.keep_every_tokens)

    def _retire(self, is_last: bool, newest: Path) -> None:
        wanted = self._session.training.checkpoint
        retention.retire(newest, wanted.keep_last, self._stays, self._averaged)
        drop_optimizers(wanted, newest, is_last)

    def _announce(self, checkpoint: Path) -> None:
        if not self._session.world.is_main:
            return
        try:
            send_checkpoint(self._reporter, checkpoint, self._session)
        except CheckpointError as error:
            raise TrainerError(
                f"{error}. It was whole when it was saved: leave the run's directory alone while it trains, "
                "and run again to resume"
            ) from error
        log.info("saved %s", checkpoint)
