"""The log of a run in the terminal: a line for each message that matters, and what is being done below."""

import logging
import os
import re
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import dagster as dg
from dagster_shared.check import CheckError

from pipeline.dagster_internals import DagsterInvalidAssetSelectionError, compute_logs, default_loggers
from pipeline.steps import compile_ahead
from pipeline.store.errors import PipelineError
from trainer.system import terminal
from trainer.system.errors import TrainerError
from trainer.system.paths import dagster_home

# A mistake in the recipe, the settings or the command. Its own words are all there is to say.
MISTAKES = (PipelineError, TrainerError, dg.DagsterInvalidSubsetError, DagsterInvalidAssetSelectionError)
# A selection such as `dedup*` holds the assets of checkpoints, and Dagster leaves those out only before it
# takes others away.
NO_PARTITION = (
    ". If it is an asset of variants, add `--partition base`, or the name of another variant. If it is "
    "`checkpoint`, `checkpoint_evaluation` or `benchmarks`, leave it out, since only training and the job "
    "`evaluate` make it: instead of `--select 'dedup*'`, type "
    '`--select \'key:"dedup"+ and not key:"checkpoint"\'`'
)
_EXPECTED = re.compile(r"\s*Expected: .*", re.DOTALL)
UNWRITTEN = (  # as SQLite says it
    "database or disk is full",
    "attempt to write a readonly database",
    "unable to open database file",
    "disk I/O error",
)
STOPPED = "stopped: what is complete is kept, run the job again to resume"
SECONDS_TO_SHOW = 5
log = logging.getLogger(__name__)
_stopped: set[str | None] = set()  # runs that have said so
_NO_NEWS = (
    "Dependencies for step ",
    "[pipes] external process successfully opened",
    "[pipes] did not receive ",  # of a trainer that was stopped or killed, which the step itself explains
)


@dg.logger({}, "One short line per message, on standard error.")
def console(_: dg.InitLoggerContext) -> logging.Logger:
    """The messages of the stages, and only the failures from Dagster."""
    logger = logging.Logger("console", logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Short())
    handler.addFilter(_is_news)
    handler.addFilter(terminal.is_news)
    handler.addFilter(_is_first_of_a_stop)  # the last one, which sees what is shown
    logger.addHandler(handler)
    return logger


def use_by_default() -> None:
    """Uses `console` for every run of this process that chooses no logger. Dagster has no setting for that,
    and ignores the run config of a partitioned job that is started in a terminal.
    """
    default_loggers.colored_console_logger = console


def show_activities() -> None:
    """Shows from now on what takes a while: `dagster job execute` in the terminal, a run that the UI or a
    sensor started in its log.
    """
    compile_ahead.announce()
    if "dagster" in Path(sys.argv[0]).parts[-2:] and "execute" in sys.argv:
        terminal.say_through(lambda what: print(f"{time.strftime('%H:%M:%S')}  {what}", file=sys.stderr))
        terminal.begin("preparing the run")
    else:
        terminal.begin_in_log(log.info)


def keep_output_to_the_end() -> None:
    """Lets Dagster show all that a step prints. Dagster shows it by a `tail` of a file, and ends that with
    the step: on a busy machine, before it has shown why the step failed. Ctrl-C reaches every process of the
    terminal, so that `tail` would end before the step says what is saved, beside a process that would print a
    stack trace.
    """
    start = compute_logs.execute_posix_tail

    @contextmanager
    def start_to_the_end(path: Any, stream: Any) -> Iterator[Any]:
        with ExitStack() as mirroring:
            usual = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # which children inherit
            try:
                started = mirroring.enter_context(start(path, stream))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, usual)
            try:
                yield started
            finally:
                most = time.monotonic() + SECONDS_TO_SHOW
                while time.monotonic() < most and _has_not_read(started[0], path):
                    time.sleep(0.02)

    compute_logs.execute_posix_tail = start_to_the_end
    # An interrupt can arrive while SQLAlchemy closes a file, which logs a stack trace and passes it on.
    if logging.lastResort:
        logging.lastResort.addFilter(_is_no_interrupt)


def repeat_lost_interrupts() -> None:
    """Interrupts this process again if an interrupt came in `__del__` or in the callback of a weak reference,
    as at the end of an import. Python prints what is raised there and goes on, and so would a canceled run.
    """
    usual = sys.unraisablehook

    def again(lost: Any) -> None:
        if issubclass(lost.exc_type, dg.DagsterExecutionInterruptedError | KeyboardInterrupt):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            usual(lost)

    sys.unraisablehook = again


def _has_not_read(process: int, path: str) -> bool:
    """Whether a process still has to read some of a file. False on a system that does not say."""
    facts, file = Path(f"/proc/{process}"), Path(path).resolve()
    try:
        found = [one.name for one in (facts / "fd").iterdir() if one.resolve() == file]
        read = [int((facts / "fdinfo" / name).read_text().split()[1]) for name in found]
        return file.stat().st_size > max(read, default=0)
    except OSError:
        return False


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, dg.DagsterExecutionInterruptedError)


def explain_on_exit() -> None:
    """Prints an invalid recipe or `-c` settings, an asset or partition that does not exist, a limit of the
    machine, or a signal before the first step as one line without a stack trace. Dagster keeps such a signal
    until it is about to call our code.
    """
    usual = sys.excepthook

    def explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # Dagster wraps what the overrides of a run raise
        cause = error.user_exception if isinstance(error, dg.DagsterUserCodeExecutionError) else error
        if isinstance(cause, dg.DagsterInvalidConfigError):
            print(f"error: {_of_settings(cause)}", file=sys.stderr)
        elif isinstance(cause, MISTAKES) or _is_of_the_command(cause, trace):
            why = str(cause).removeprefix("Failure condition: ")
            print(f"error: {why}{NO_PARTITION if 'has partitions, but' in why else ''}", file=sys.stderr)
        elif isinstance(error, dg.DagsterExecutionInterruptedError):
            print(STOPPED, file=sys.stderr)
            sys.exit(128 + signal.SIGINT)  # which Python takes from an excepthook, too
        elif unwritten := _unwritten_records(error):
            print(f"error: {unwritten}", file=sys.stderr)
        else:
            usual(kind, error, trace)

    sys.excepthook = explain


def _unwritten_records(error: BaseException | None) -> str:
    """Why Dagster's SQLite files cannot be written, if that is what a chain of errors began with."""
    while error is not None:
        if isinstance(error, sqlite3.OperationalError) and str(error) in UNWRITTEN:
            return (
                f"Dagster's records in DAGSTER_HOME {dagster_home()} cannot be written ({error}): free some "
                "space there, or change who may write there, and run again"
            )
        error = error.__cause__ or error.__context__
    return ""


def _of_settings(error: dg.DagsterInvalidConfigError) -> str:
    """What is wrong with the file of `-c`, without all that could stand there."""
    found = "; ".join(_EXPECTED.sub("", one.message).strip().rstrip(".") for one in error.errors)
    return f"{found}: settings of the recipe go below `resources: workshop: config: overrides` (docs/jobs.md)"


def _is_of_the_command(error: BaseException, trace: TracebackType | None) -> bool:
    """Whether Dagster's command refused how it was called. It has no type of its own for that."""
    if not isinstance(error, CheckError):
        return False
    raised_in = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]
    in_commands = Path(dg.__file__).with_name("_cli")
    return len(raised_in) > 1 and Path(raised_in[-2]).is_relative_to(in_commands)


def _is_news(record: logging.LogRecord) -> bool:
    """False for the steps after a failed one, for a mistake outside of the steps, which `explain_on_exit`
    explains, and for the trainer's first contact: lines about them bury what matters.
    """
    facts = getattr(record, "dagster_meta", {})
    event = facts.get("dagster_event")
    if event is not None and _was_stopped(event):
        return True
    if event is not None and event.is_resource_init_failure:
        return _is_unexplained(event)
    if event is not None and event.is_run_failure and event.job_failure_data.error:
        return False
    return not (facts.get("orig_message") or "").startswith(_NO_NEWS)


def _is_first_of_a_stop(record: logging.LogRecord) -> bool:
    """A run that somebody stops says so once: by its step or, before and between steps, by itself. Dagster
    makes a logger for each of these.
    """
    facts = getattr(record, "dagster_meta", {})
    event, run = facts.get("dagster_event"), facts.get("run_id")
    if event is None or not (_is_interrupted(event) or _was_stopped(event)):
        return True
    first = run not in _stopped
    _stopped.add(run)
    return first


def _is_unexplained(event: dg.DagsterEvent) -> bool:
    """Whether a run failed before its steps for a reason that is not raised once more for its result."""
    error = event.engine_event_data.error
    ours = ("pipeline.", "trainer.")  # whose errors are mistakes
    said = error.message if error else ours[0]
    return not said.startswith(ours) and not any(why in said for why in UNWRITTEN)


def _is_interrupted(event: dg.DagsterEvent) -> bool:
    source = event.step_failure_data.error_source if event.is_step_failure else None
    return source is not None and source.name == "INTERRUPT"


def _was_stopped(event: dg.DagsterEvent) -> bool:
    """Whether this is the end of a run, by a signal."""
    error = event.job_failure_data.error if event.is_run_failure else None
    stopped = error is not None and error.cls_name == dg.DagsterExecutionInterruptedError.__name__
    return stopped or event.event_type == dg.DagsterEventType.RUN_CANCELED


class _Short(logging.Formatter):
    """`12:00:31 token_shards/docs message`. Only an error of ours is followed by a stack trace."""

    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "dagster_meta", {})
        named = facts.get("step_key") or facts.get("job_name") or ""
        # Dagster calls the job of chosen assets __ASSET_JOB, which nobody has named.
        step = "chosen assets" if named.startswith("__") else named.replace("__", "/")
        message = _message(record, facts.get("dagster_event"), facts.get("orig_message"))
        return f"{self.formatTime(record, '%H:%M:%S')}  {step:<32}  {message.removeprefix(f'{step}: ')}"


def _message(record: logging.LogRecord, event: dg.DagsterEvent | None, original: str | None) -> str:
    if event is not None and _was_stopped(event):
        return STOPPED
    if event is not None and event.is_step_failure:
        failure = event.step_failure_data
        if _is_interrupted(event) and failure.error:
            # Beside the code of the step, nothing is said of what stopped it.
            said = failure.error.message.strip().partition(": ")[2] or STOPPED
            return f"STOPPED: {said.removeprefix('stopped: ')}"
        if failure.user_failure_data and failure.user_failure_data.description:
            return f"FAILED: {failure.user_failure_data.description}"
        if failure.error and failure.error.cls_name == "DagsterAssetCheckFailedError":
            return " ".join(["FAILED:", *failure.error.message.split()[1:]])  # the reason stands above
        return f"FAILED: {failure.error.to_string() if failure.error else original}"
    if event is not None and event.is_resource_init_failure and (error := event.engine_event_data.error):
        return f"FAILED: {error.to_string()}"
    return original or record.getMessage()
