"""A run from the configuration to the last checkpoint: build, resume, step, evaluate, save."""

import logging
import math
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from itertools import count

import torch

from trainer.config import RunConfig
from trainer.optim.weight_averaging import use_averaged_weights
from trainer.parallel.world import World, join, leave, naming_lost_processes
from trainer.run import resume
from trainer.run.alike import must_be_alike
from trainer.run.checkpointing import Saver, drop_optimizers
from trainer.run.evaluation.preferences import EvaluationStoppedError
from trainer.run.fit import micro_batch
from trainer.run.fit.rehearsal import dry_run, explained
from trainer.run.garbage import GarbageCollection
from trainer.run.records.dagster_pipes import Reporter, send_again, send_start
from trainer.run.records.log_file import log_file
from trainer.run.records.nonfinite_report import explain
from trainer.run.records.recorder import NullRecorder, Recorder
from trainer.run.records.step_timer import StepTimer
from trainer.run.resolve import Plan, resolve
from trainer.run.session import Session
from trainer.run.shared_states import go_on_from_newest
from trainer.run.step import NotFiniteError
from trainer.system import terminal
from trainer.system.errors import RESUMABLE, ProcessLostError, TrainerError, in_every_process
from trainer.system.prefetch import ahead
from trainer.system.run_directory import RunDirectory
from trainer.system.signals import StoppedEarlyError, StopSignals, ending_at_once
from trainer.system.wording import counted

DONE = 0

log = logging.getLogger("trainer")


def run(config: RunConfig, allow_changes: bool = False, profile: bool = False) -> int:
    """Trains to max_tokens (returns DONE) or until a signal in STOPPING (returns RESUMABLE).

    `allow_changes` resumes from a checkpoint with other settings; `profile` writes a trace of a few steps to
    the run's directory. Raises TrainerError for what the user can correct.
    """
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        waiting = terminal.doing("joining the other processes")
        with waiting, ending_at_once(), naming_lost_processes():
            world = join(config.training.parallel, partial(must_be_alike, config))
        stack.callback(leave)
        reporter = Reporter(world.is_main)
        stack.callback(reporter.close)
        stack.enter_context(_errors_reported(reporter))
        stack.enter_context(naming_lost_processes())
        # Closing files writes their last lines, which fails on a full disk, too.
        directory = stack.enter_context(RunDirectory(config.run_dir).writable())
        append_log_to = stack.enter_context(log_file()) if world.is_main else None
        with terminal.doing(f"reading the tokens of {counted(len(config.data.corpora), 'corpora')}"):
            plan = resolve(config, world)
        world.from_main(lambda: stack.enter_context(directory.locked()))
        session = _resumed(plan, world, directory, reporter, allow_changes)
        if not session.is_complete:
            with terminal.doing("compiling the model" if plan.compiled else "trying one micro-batch"):
                dry_run(session)
            session.repeat_in_graphs()
            stop.after_step()
            recorder = NullRecorder()
            if append_log_to is not None:
                # May refuse: before anything is written.
                recorder = Recorder(session, directory, reporter, profile)
                append_log_to(directory.log)
                stack.callback(recorder.close)
            saver = Saver(session, directory, recorder, reporter)
            stack.callback(saver.writer.close)
            _train(session, recorder, saver, stop)
        if not session.is_complete:
            log.info("stopped at step %d of %d; run again to resume", session.step, session.training.steps)
            return RESUMABLE
        last = directory.checkpoint(session.step)
        log.info("complete: %s tokens, %s", f"{session.tokens:,}", last)
        reporter.send(
            "end", step=session.step, tokens=session.tokens, loss=session.loss, evaluation=session.evaluation
        )
        return DONE
    return RESUMABLE


@contextmanager
def _errors_reported(reporter: Reporter) -> Iterator[None]:
    """Reports the error that ends a run. A signal before the first step is none."""
    try:
        yield
    except StoppedEarlyError:
        log.info("stopped before this start took a step, with nothing new to save; run again to train")
    except (TrainerError, ProcessLostError) as error:
        reporter.send("error", message=str(error))
        raise
    except Exception as error:
        reporter.send("error", message="".join(traceback.format_exception(error)[-3:]).strip())
        raise


def _resumed(
    plan: Plan, world: World, directory: RunDirectory, reporter: Reporter, allow_changes: bool
) -> Session:
    """The session at the newest state that there is of the run, its own or another run's."""
    with terminal.doing("looking for a checkpoint to resume from"):
        resumed = world.from_main(lambda: resume.find(plan, directory.checkpoints, allow_changes))
    with terminal.doing("building the model"):
        session = micro_batch.build_fitting(plan, world, resumed)
    session.set_reference()
    with terminal.doing("looking for a state that another run has computed"):
        resumed = world.from_main(lambda: go_on_from_newest(session, directory, resumed))
    if resumed:
        with terminal.doing(f"loading {resumed}"):
            resume.restore(session, resumed)
        if world.is_main:  # what a killed run could not drop, or what other settings kept
            drop_optimizers(session.training.checkpoint, resumed, session.is_complete)
    send_start(reporter, session, resumed)
    if world.is_main:
        send_again(reporter, directory.checkpoints, session)
    return session


def _train(session: Session, recorder: NullRecorder, saver: Saver, stop: StopSignals) -> None:
    """Takes steps until the run is complete or a signal stops it. Returns once its last checkpoint is on
    disk.
    """
    world, every_tokens, first = session.world, session.training.evaluation.every_tokens, session.step
    if first and session.passes(every_tokens) and session.evaluation is None:  # a signal prevented it
        _evaluate(session, recorder, stop)
    data, rank, size = session.plan.data, world.data_rank, world.data_size
    batches = ahead(data.batch(step, rank, size) for step in count(first))
    # If a signal prevents that validation again, no step may be taken: after it nobody would make up for it.
    stopping = first > 0 and _is_stopped(session, stop)
    with closing(batches), closing(GarbageCollection(world.device.type == "cuda")) as garbage:
        timer = StepTimer()
        while not (session.is_complete or stopping):
            recorder.before_step()
            with timer.waiting():
                windows = torch.from_numpy(next(batches))
            with _step_errors(session, is_first=session.step == first):
                result = session.take_step(windows.to(world.device))
            timer.after_step()
            norm = session.weight_norm() if result.spike or session.is_logged else None
            recorder.step(result, norm, step_seconds=timer.seconds, wait_seconds=timer.waited)
            stopping = _is_stopped(session, stop)
            if not stopping and (session.is_complete or session.passes(every_tokens)):
                _evaluate(session, recorder, stop)
                stopping = _is_stopped(session, stop)
                timer.restart()
            if stopping or saver.is_due():
                _check_trained(session)
                saver.save()
                timer.restart()
            saver.writer.poll()
            garbage.after_step(session.step)
            recorder.after_step()
    with terminal.doing("waiting for the last checkpoint to be on disk"):
        saver.writer.wait()
        world.barrier()


@contextmanager
def _step_errors(session: Session, is_first: bool) -> Iterator[None]:
    """Raises TrainerError for a step that does not fit or is not finite."""
    # Only the first step makes the optimizer's state: the dry run did not.
    fitting = explained("the first step, which adds the optimizer's state,") if is_first else nullcontext()
    try:
        with fitting:
            yield
    except NotFiniteError as error:
        with in_every_process():
            raise TrainerError(explain(session, error, session.config.run_dir)) from error


def _check_trained(session: Session) -> None:
    """Raises TrainerError for a state that must not be saved, where it would take the place of a good one:
    one of weights that are not finite. At the last step also if no step changed a weight, or the validation
    loss is not finite. A collective.
    """
    skipped, loss = session.context.loss_scale.skipped_steps, (session.evaluation or {"loss": 0.0})["loss"]
    norm = session.weight_norm()
    if session.is_complete and skipped == session.step:
        why = f"the gradients of all {skipped} steps overflowed, so no weight was updated"
    elif session.is_complete and not math.isfinite(loss):
        why = f"the validation loss is {loss}"
    elif not math.isfinite(norm):
        why = f"the norm of the weights is {norm} after step {session.step}"
    else:
        return
    with in_every_process():
        raise TrainerError(
            f"{session.config.run_dir}: trained in {session.plan.precision}, {why}, and the last step is not "
            "saved: train in bf16 or fp32, or with smaller initial weights and a lower learning rate"
        )


def _is_stopped(session: Session, stop: StopSignals) -> bool:
    """Whether any process received a signal. No signal stops after the last step. A collective."""
    return not session.is_complete and session.world.any(stop.received)


def _evaluate(session: Session, recorder: NullRecorder, stop: StopSignals) -> None:
    """Evaluates the current step. A signal aborts it, unless the run is complete; the resumed run repeats
    it.
    """
    with use_averaged_weights(session.optimizers):
        try:
            with terminal.doing(f"step {session.step}: validating"):
                session.evaluation = session.evaluate(gives_up=lambda: _is_stopped(session, stop))
        except EvaluationStoppedError:
            return
        recorder.evaluation(session.evaluation)
        if session.training.samples.prompts and (model := session.unsplit_model()) is not None:
            recorder.samples(model)
