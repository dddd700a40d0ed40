"""A run from the configuration to the last checkpoint: prepare, resume, step, evaluate, save."""

import logging
import time
import traceback
from contextlib import ExitStack

import torch
import yaml

from trainer.checkpoint import store
from trainer.config import RunConfig
from trainer.durable import write_atomically
from trainer.errors import TrainerError
from trainer.evaluate import evaluate
from trainer.loader import Prefetcher
from trainer.parallel.world import World, join, leave
from trainer.recorder import Recorder, send_checkpoint, send_start
from trainer.report import Reporter
from trainer.rundir import RunDirectory
from trainer.session import Session
from trainer.signals import StopSignals
from trainer.step import train_step

DONE = 0
# EX_TEMPFAIL of sysexits.h: stopped on request with everything saved; run again to go on.
RESUMABLE = 75

log = logging.getLogger("trainer")


def run(config: RunConfig) -> int:
    """Trains to max_tokens or until SIGTERM or SIGINT: DONE or RESUMABLE. TrainerError for what the user can correct."""
    with StopSignals() as stop, ExitStack() as stack:
        world = join()
        stack.callback(leave)
        reporter = stack.enter_context(Reporter(world.is_main))
        try:
            return _run(config, world, reporter, stop, stack)
        except TrainerError as error:
            reporter.send("error", message=str(error))
            raise
        except Exception as error:
            reporter.send("error", message="".join(traceback.format_exception(error)[-3:]).strip())
            raise


def _run(config: RunConfig, world: World, reporter: Reporter, stop: StopSignals, stack: ExitStack) -> int:
    session = Session.prepare(config, world)
    directory = RunDirectory(config.run_dir)
    if world.is_main:
        stack.enter_context(directory.locked())
    resumed = session.resume(directory.checkpoints)
    send_start(reporter, session, resumed)
    recorder = None
    if world.is_main:
        for checkpoint in store.existing(directory.checkpoints):
            if store.step_of(checkpoint) <= session.step:
                send_checkpoint(reporter, checkpoint, session)
        if not session.is_complete:
            write_atomically(directory.config, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
            recorder = Recorder(session, directory, reporter)
            stack.callback(recorder.close)
    status = DONE if session.is_complete else _train(session, directory, recorder, stop)
    if status == DONE:
        log.info("complete: %s tokens, %s", f"{session.tokens:,}", store.directory_for(directory.checkpoints, session.step))
        reporter.send("end", step=session.step, tokens=session.tokens, loss=session.loss, evaluation=session.evaluation)
    return status


def _train(session: Session, directory: RunDirectory, recorder: Recorder | None, stop: StopSignals) -> int:
    training, world = session.training, session.world
    session.compile_blocks()
    if session.step and session.is_due(training.evaluation.every_tokens) and session.evaluation is None:
        _evaluate(session, recorder)  # a signal came before it could be made
    batches = Prefetcher(session.data, world.rank, world.size)
    try:
        while not session.is_complete:
            started = time.perf_counter()
            windows = torch.from_numpy(batches.batch(session.step))
            waited = time.perf_counter()
            result = train_step(
                session.model,
                session.optimizers,
                windows.to(world.device),
                session.step,
                training,
                session.precision,
                session.bot_id,
                world,
                session.loss_scale,
            )
            session.step, session.loss, session.evaluation = session.step + 1, result.loss, None
            if recorder is not None:
                recorder.step(result, time.perf_counter() - started, waited - started)

            # The last step is followed by everything that ends a run, signal or not.
            stopping = not session.is_complete and world.any(stop.received)
            if not stopping and session.is_due(training.evaluation.every_tokens):
                _evaluate(session, recorder)
            if stopping or session.is_due(training.checkpoint.every_tokens):
                _save(session, directory, recorder)
            if stopping:
                log.info("stopped at step %d of %d; run again to go on", session.step, training.steps)
                return RESUMABLE
    finally:
        batches.close()
    return DONE


def _evaluate(session: Session, recorder: Recorder | None) -> None:
    session.evaluation = evaluate(session.model, session.config.data, session.training, session.precision, session.world)
    if recorder is not None:
        if session.evaluation is not None:
            recorder.evaluation(session.evaluation)
        recorder.samples()


def _save(session: Session, directory: RunDirectory, recorder: Recorder | None) -> None:
    if recorder is not None:
        checkpoint = store.directory_for(directory.checkpoints, session.step)
        # The metrics must be on disk before a checkpoint that vouches for them.
        recorder.metrics.sync()
        try:
            session.save(checkpoint)
        except OSError as error:
            raise TrainerError(f"{checkpoint}: cannot be saved ({error}); earlier checkpoints are intact, free some space and run again") from error
        store.retire(checkpoint, session.training.checkpoint.keep_last)
        recorder.checkpoint(checkpoint)
    session.world.barrier()
