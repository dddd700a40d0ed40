"""A run from the configuration to the last checkpoint: build, resume, step, evaluate, save."""

import errno
import logging
import math
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path

import torch
import yaml

from trainer.checkpoint import publish
from trainer.checkpoint.publish import CheckpointError
from trainer.config import RunConfig
from trainer.optim.weight_averaging import use_averaged_weights
from trainer.parallel.world import World, join, leave
from trainer.run import resume
from trainer.run.checkpointing import Saver, drop_optimizers
from trainer.run.evaluation.pairs import EvaluationStoppedError
from trainer.run.fit import micro_batch
from trainer.run.fit.rehearsal import dry_run, explained
from trainer.run.garbage import GarbageCollection
from trainer.run.records.dagster_pipes import Reporter, send_checkpoint, send_start
from trainer.run.records.log_file import log_file
from trainer.run.records.nonfinite_report import explain
from trainer.run.records.profiling import profiler
from trainer.run.records.recorder import Recorder
from trainer.run.resolve import resolve
from trainer.run.session import Session
from trainer.run.step import NotFiniteError
from trainer.system import terminal
from trainer.system.durable import write_atomically
from trainer.system.errors import RESUMABLE, TrainerError, in_every_process
from trainer.system.prefetch import ahead
from trainer.system.run_directory import RunDirectory
from trainer.system.signals import StoppedEarlyError, StopSignals

DONE = 0

log = logging.getLogger("trainer")


def run(config: RunConfig, allow_changes: bool = False, profile: bool = False) -> int:
    """Trains to max_tokens (returns DONE) or until a signal in STOPPING (returns RESUMABLE).

    `allow_changes` resumes from a checkpoint with other settings; `profile` writes a trace of a few steps to
    the run's directory. Raises TrainerError for what the user can correct.
    """
    with StopSignals() as stop, ExitStack() as to_the_end:
        with terminal.doing("joining the other processes"):
            world = join(config.training.parallel)
        to_the_end.callback(leave)
        reporter = Reporter(world.is_main)
        to_the_end.callback(reporter.close)
        try:
            # Closing files writes their last lines, which fails on a full disk, too.
            with writable(config.run_dir), ExitStack() as stack:
                return _run(config, world, reporter, stop, stack, allow_changes, profile)
        except StoppedEarlyError:
            log.info("stopped before the first step, with nothing to save; run again to start")
            return RESUMABLE
        except TrainerError as error:
            reporter.send("error", message=str(error))
            raise
        except Exception as error:
            reporter.send("error", message="".join(traceback.format_exception(error)[-3:]).strip())
            raise


@contextmanager
def writable(run_dir: Path) -> Iterator[None]:
    """Raises TrainerError if the disk is full, or a file of the run cannot be written, whichever it is:
    metrics, a plot, an index.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TrainerError(
                f"{run_dir}: {error.strerror}; checkpoints are intact. Free some space and run again to "
                "resume"
            ) from error
        if not error.filename or not Path(os.fsdecode(error.filename)).is_relative_to(run_dir):
            raise
        if not run_dir.exists():
            raise TrainerError(
                f"{run_dir}: removed while the run trained, with its checkpoints; run again to start over"
            ) from error
        raise TrainerError(
            f"{os.fsdecode(error.filename)}: {error.strerror}: this file of the run cannot be written. Make "
            "it writable and run again to resume"
        ) from error


def _run(
    config: RunConfig,
    world: World,
    reporter: Reporter,
    stop: StopSignals,
    stack: ExitStack,
    allow_changes: bool,
    profile: bool,
) -> int:
    append_log_to = stack.enter_context(log_file()) if world.is_main else None
    with terminal.doing(f"reading the tokens of {len(config.data.corpora)} corpora"):
        plan, directory = resolve(config, world), RunDirectory(config.run_dir)
    world.from_main(lambda: stack.enter_context(directory.locked()))
    with terminal.doing("looking for a checkpoint to resume from"):
        resumed = resume.find(plan, world, directory.checkpoints, allow_changes)
    with terminal.doing("building the model"):
        session = micro_batch.build_fitting(plan, world, resumed)
    session.compare_with_start()
    if resumed:
        with terminal.doing(f"loading {resumed}"):
            resume.restore(session, resumed)
        if world.is_main:  # what a killed run could not drop, or what other settings kept
            drop_optimizers(session.training.checkpoint, resumed, session.is_complete)
    send_start(reporter, session, resumed)
    if world.is_main:
        for checkpoint in publish.existing(directory.checkpoints):
            if publish.step_of(checkpoint) <= session.step:
                _announce_again(reporter, checkpoint, session)
    status = DONE
    if not session.is_complete:
        with terminal.doing("compiling the model" if plan.compiled else "trying one micro-batch"):
            dry_run(session)
        stop.after_step()
        recorder = None
        if append_log_to is not None:
            recorder = Recorder(session, directory, reporter)  # may refuse: before anything is written
            append_log_to(directory.log)
            write_atomically(
                directory.config, yaml.safe_dump(session.config.model_dump(mode="json"), sort_keys=False)
            )
            stack.callback(recorder.close)
        saver = Saver(session, directory, recorder.metrics if recorder else None, reporter)
        stack.callback(saver.writer.close)
        tracing = (
            stack.enter_context(profiler(directory.profile, session.step))
            if profile and world.is_main
            else None
        )
        status = _train(session, recorder, saver, tracing, stop)
    if status == DONE:
        log.info(
            "complete: %s tokens, %s",
            f"{session.tokens:,}",
            publish.directory_for(directory.checkpoints, session.step),
        )
        reporter.send(
            "end", step=session.step, tokens=session.tokens, loss=session.loss, evaluation=session.evaluation
        )
    return status


def _announce_again(reporter: Reporter, checkpoint: Path, session: Session) -> None:
    """Reports a checkpoint that Dagster may have missed; skips a damaged one, which the run does not need."""
    try:
        send_checkpoint(reporter, checkpoint, session)
    except (CheckpointError, TrainerError) as error:
        log.warning("not reported: %s", error)


def _train(
    session: Session,
    recorder: Recorder | None,
    saver: Saver,
    tracing: torch.profiler.profile | None,
    stop: StopSignals,
) -> int:
    training, world = session.training, session.world
    reached = session.step and session.passes(training.evaluation.every_tokens)
    if reached and session.evaluation is None:  # a signal prevented it before
        _evaluate(session, recorder, stop)
    data, rank, size = session.plan.data, world.data_rank, world.data_size
    batches = ahead(data.batch(step, rank, size) for step in count(session.step))
    stopping = False
    # Only the first step makes the optimizer's state: the dry run did not.
    said: AbstractContextManager[None] = explained("the first step, which adds the optimizer's state,")
    garbage = GarbageCollection(world.device.type == "cuda")
    ended = time.perf_counter()
    try:
        while not (session.is_complete or stopping):
            if recorder is not None:
                recorder.before_step()
            asked = time.perf_counter()
            windows = torch.from_numpy(next(batches))
            waited = time.perf_counter() - asked
            try:
                with said:
                    result = session.take_step(windows.to(world.device))
            except NotFiniteError as error:
                with in_every_process():
                    raise TrainerError(explain(session, error, session.config.run_dir)) from error
            said = nullcontext()
            # From end to end: when a step returns, a GPU still updates the weights.
            started, ended = ended, time.perf_counter()
            norm = session.weight_norm() if result.spike or session.logs(session.step) else None
            if recorder is not None:
                recorder.step(result, norm, ended - started, waited)
            stopping = _is_stopped(session, stop)
            if not stopping and (session.is_complete or session.passes(training.evaluation.every_tokens)):
                _evaluate(session, recorder, stop)
                stopping = _is_stopped(session, stop)
                ended = time.perf_counter()
            if session.is_complete:
                _check_trained(session)
            if stopping or saver.is_due():
                saver.save()
                ended = time.perf_counter()
            saver.writer.poll()
            garbage.after_step(session.step)
            if tracing is not None:
                tracing.step()
    finally:
        batches.close()
        garbage.close()
    with terminal.doing("waiting for the last checkpoint to be on disk"):
        saver.writer.wait()
        world.barrier()
    if stopping:
        log.info("stopped at step %d of %d; run again to resume", session.step, training.steps)
        return RESUMABLE
    return DONE


def _check_trained(session: Session) -> None:
    """Raises TrainerError if no step changed a weight, or the validation loss is not finite."""
    skipped, loss = session.loss_scale.skipped_steps, (session.evaluation or {"loss": 0.0})["loss"]
    if skipped == session.step:
        why = f"the gradients of all {skipped} steps overflowed, so no weight was updated"
    elif not math.isfinite(loss):
        why = f"the validation loss is {loss}"
    else:
        return
    with in_every_process():
        raise TrainerError(
            f"{session.config.run_dir}: trained in {session.plan.precision}, {why}, and the last step is not "
            "saved: train in bf16 or fp32, or with smaller initial weights and a lower learning rate"
        )


def _is_stopped(session: Session, stop: StopSignals) -> bool:
    """Whether any process received a signal. After the last step the run is finished regardless. A
    collective.
    """
    return not session.is_complete and session.world.any(stop.received)


def _evaluate(session: Session, recorder: Recorder | None, stop: StopSignals) -> None:
    """Evaluates the current step. A signal aborts it, unless the run is complete; the resumed run repeats
    it.
    """
    with use_averaged_weights(session.optimizers):
        try:
            with terminal.doing(f"step {session.step}: validating"):
                session.evaluation = session.evaluate(gives_up=lambda: _is_stopped(session, stop))
        except EvaluationStoppedError:
            return
        if recorder is not None:
            if session.evaluation is not None:
                recorder.evaluation(session.evaluation)
            recorder.draw()
        if session.training.samples.prompts:
            model = session.unsplit_model()
            if recorder is not None and model is not None:
                with terminal.doing(f"step {session.step}: writing samples"):
                    recorder.samples(model)
