"""Messages to Dagster if it launched this process. Training never depends on a listener."""

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any

from trainer.checkpoint import publish, state
from trainer.run.session import Session
from trainer.system import terminal
from trainer.system.errors import TrainerError
from trainer.system.run_history import reported
from trainer.system.wording import begins

METRICS_INTERVAL_SECONDS = 5.0

log = logging.getLogger("trainer")


class Reporter:
    """Sends messages `{"kind": start | metrics | evaluation | sample | checkpoint | error | end, ...}`
    through Dagster Pipes, and from a thread `{"kind": "doing", "what": ...}` of what takes a while.

    Does nothing without DAGSTER_PIPES_CONTEXT, in other processes than the main one, or after the connection
    broke.
    """

    def __init__(self, is_main: bool) -> None:
        self._context: Any = None
        self._last_metrics = -METRICS_INTERVAL_SECONDS
        if is_main and os.environ.get("DAGSTER_PIPES_CONTEXT"):
            from dagster_pipes import open_dagster_pipes

            self._context = open_dagster_pipes()
            terminal.say_through(lambda what: self.send("doing", what=what))

    def close(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            with contextlib.suppress(OSError):
                context.close()

    def send(self, kind: str, **message: Any) -> None:
        """Sends a `message` of JSON values; metrics at most once in 5 seconds, unless the loss spiked."""
        if self._context is None:
            return
        if kind == "metrics":
            now = time.monotonic()
            if now - self._last_metrics < METRICS_INTERVAL_SECONDS and not message.get("spike"):
                return
            self._last_metrics = now
        try:
            self._context.report_custom_message({"kind": kind, **message})
        except OSError as error:
            log.warning("lost the connection to Dagster (%s); training continues", error)
            self._context = None


def send_start(reporter: Reporter, session: Session, resumed: Path | None) -> None:
    model, vocab_size = session.training.model, session.config.data.vocab_size
    facts = {
        "parameters": model.parameters(vocab_size),
        "flops_per_token": model.flops_per_token(vocab_size, session.training.seq_len),
        "device": str(session.world.device),
        "processes": session.world.size,
        "precision": session.plan.precision,
        "attention": session.plan.attention,
        "tokens_total": session.training.max_tokens,
        "epochs": session.plan.data.epochs(),
        "padding": session.plan.data.padding,
        "resumed_from": str(resumed) if resumed else None,
        "trunks": session.trunks,
    }
    reporter.send("start", **facts)
    log.info(begins(facts))


def send_checkpoint(reporter: Reporter, checkpoint: Path, session: Session) -> None:
    """Reports a committed checkpoint. A repeated message is recognized by `data_version`."""
    facts = reported(checkpoint, state.read_state(checkpoint), publish.manifest(checkpoint))
    parameters = session.training.model.parameters(session.config.data.vocab_size)
    reporter.send("checkpoint", **facts, parameters=parameters)


def send_again(reporter: Reporter, checkpoints: Path, session: Session) -> None:
    """Reports checkpoints up to this step again, since Dagster may lack them; skips damaged ones."""
    for checkpoint in publish.existing(checkpoints):
        if publish.step_of(checkpoint) > session.step:
            break
        try:
            send_checkpoint(reporter, checkpoint, session)
        except TrainerError as error:
            log.warning("not reported: %s", error)
