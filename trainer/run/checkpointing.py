"""When a run saves, and which of its checkpoints are kept."""

import logging
import time
from functools import partial
from pathlib import Path

from trainer.checkpoint import publish as store
from trainer.checkpoint.background import CheckpointWriter, Staging
from trainer.checkpoint.publish import CheckpointError
from trainer.run.records.dagster_pipes import Reporter, send_checkpoint
from trainer.run.records.metrics import MetricsLog
from trainer.run.session import Session
from trainer.system.errors import TrainerError
from trainer.system.run_directory import RunDirectory

log = logging.getLogger("trainer")


class Saver:
    """Decides when to save, in every process alike. The main process writes; if the model is split, all do.

    Only the main process has the run's `metrics`.
    """

    def __init__(
        self, session: Session, directory: RunDirectory, metrics: MetricsLog | None, reporter: Reporter
    ) -> None:
        self._session, self._directory, self._metrics = session, directory, metrics
        self._reporter = reporter
        self._writes = session.world.is_main or session.world.mesh is not None
        self.writer = CheckpointWriter(self._announce, session.world)
        self._staging = Staging()
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether to save after the last step. A collective."""
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

    def save(self) -> None:
        """Returns when the state is copied and the previous checkpoint is committed."""
        self._last = time.monotonic()
        if not self._writes:
            return
        session = self._session
        self.writer.wait()
        # The checkpoint holds the length of the metrics, so they must be on disk before it.
        metrics_bytes = self._metrics.sync() if self._metrics is not None else 0
        snapshot = session.snapshot(self._staging, metrics_bytes)
        retire = partial(store.retire, keep_last=session.training.checkpoint.keep_last, stays=session.stays)
        self.writer.save(
            store.directory_for(self._directory.checkpoints, session.step), snapshot.write, retire
        )

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
