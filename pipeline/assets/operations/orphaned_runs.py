"""Ends runs in progress whose process is gone. For Dagster they would run, and hold the GPU, for ever."""

import datetime
import logging
import multiprocessing
import os
import platform
from pathlib import Path

import dagster as dg

from pipeline.assets.operations import dagster_storages
from pipeline.assets.used_recipe import RECIPE_TAG, UsedRecipe
from pipeline.dagster_internals import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

log = logging.getLogger(__name__)

# Dagster's UI hides tags that begin with `.dagster/`
PROCESS_TAG = ".dagster/groundwork_process"
REPOSITORY_TAG = ".dagster/repository"
MAX_RETRIES_TAG = "dagster/max_retries"  # Dagster retries a run that failed outside its steps
WILL_RETRY_TAG = "dagster/will_retry"  # Dagster's decision about a run that failed
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
UNDER_WAY = [status for status in dg.DagsterRunStatus if status not in ENDED]
DEFINITIONS = "pipeline.definitions"
# a started run records its process within a second, or within a minute on an overloaded machine
CLAIMED_WITHIN = datetime.timedelta(minutes=10)


def this_process(number: int | None = None) -> str:
    """What distinguishes this process, or the one with a `number`, from all others that ever had its number:
    its host and when that booted, its namespace, its number, and when it started, in clock ticks since the
    boot.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace, number = Path("/proc/self/ns/pid").readlink().name, number or os.getpid()
    return f"{platform.node()} {boot} {namespace} {number} {_started(number)}"


def _is_gone(process: str) -> bool:
    """Whether a process has ended. False for one of another machine or container."""
    (host, boot, namespace, number, started), here = process.split(), this_process().split()
    if host != here[0]:
        return False
    return boot != here[1] or (namespace == here[2] and _started(int(number)) != started)


def executes_one_step(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether this process was started for one step of the run, as Dagster's usual executor does."""
    if multiprocessing.parent_process() is None:
        return False
    entries = instance.all_logs(run.run_id, dg.DagsterEventType.STEP_WORKER_STARTED)
    events = (entry.dagster_event for entry in entries if entry.dagster_event)
    return any(event.engine_event_data.metadata["pid"].value == str(os.getpid()) for event in events)


def claim(instance: dg.DagsterInstance, run: dg.DagsterRun, used: UsedRecipe) -> None:
    """Tags the run with the process that executes it, and gives a run from a terminal what one from the UI
    has from the beginning: a code location, without which the UI's first page leaves it out. A project of
    somebody else's has a name that is not known here.
    """
    process = this_process(os.getppid() if executes_one_step(instance, run) else None)
    tags = {PROCESS_TAG: f"{run.run_id} {process}"}
    if run.remote_job_origin is None:  # it is repeated by a person
        tags |= {MAX_RETRIES_TAG: "0"}
        if used.file is None:  # a run from the UI would be listed twice
            tags |= {REPOSITORY_TAG: f"__repository__@{DEFINITIONS}"}
    instance.add_run_tags(run.run_id, tags)
    if REPOSITORY_TAG in tags and (stored := instance.get_run_by_id(run.run_id)):
        # Dagster takes an origin only where it starts a run itself.
        repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(DEFINITIONS), "__repository__")
        origin = RemoteJobOrigin(repository, run.job_name)
        dagster_storages.write(instance, stored._replace(remote_job_origin=origin))


def process_of(run: dg.DagsterRun) -> str | None:
    """The process that claimed the run, if one has. A retried run that none has claimed still has a copy of
    the tags of the run that it retries.
    """
    run_id, _, process = run.tags.get(PROCESS_TAG, "").partition(" ")
    return process if run_id == run.run_id else None


def under_way(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """The runs of this code that have not ended. Those whose process is gone are reported first."""
    report(instance)
    return [run for run in instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY)) if _is_ours(run)]


def report(instance: dg.DagsterInstance) -> list[str]:
    """Reports runs whose process is gone as failed or canceled, and returns their ids. Frees their pools, and
    those of runs that Dagster itself has reported: it would let the next run wait for up to three minutes.
    """
    lost = [
        record.dagster_run
        for record in instance.get_run_records(dg.RunsFilter(statuses=UNDER_WAY))
        if _is_lost(record)
    ]
    for run in lost:
        canceled = run.status is dg.DagsterRunStatus.CANCELING
        # Dagster retries a failed run, but not a canceled one.
        end = instance.report_run_canceled if canceled else instance.report_run_failed
        end(
            run,
            f"The process of this run is gone{at_work_on(instance, run)}: it was killed, code that the "
            "recipe names ended it, or the machine went down. Its results so far are kept.",
        )
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        log.warning("the process of run %s is gone: reported the run as ended", run.run_id[:8])
    _free_pools_of_ended(instance)
    return [run.run_id for run in lost]


def _free_pools_of_ended(instance: dg.DagsterInstance) -> None:
    events = instance.event_log_storage
    for run_id in events.get_concurrency_run_ids():
        run = instance.get_run_by_id(run_id)
        process = process_of(run) if run and run.is_finished else None
        # The process of a run that a person has force-terminated may still be saving.
        if run and process and _is_gone(process):
            events.free_concurrency_slots_for_run(run_id)


def at_work_on(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """The steps that the run had begun and not ended. Nothing else says which code ended the process."""
    ends = {dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE}
    entries = instance.all_logs(run.run_id, of_type={dg.DagsterEventType.STEP_START, *ends})
    # Of a step that began again, the last event counts.
    last = {entry.step_key: entry.dagster_event_type for entry in entries if entry.step_key}
    begun = [step.replace("__", "/") for step, event in last.items() if event not in ends]
    return f" (it was at work on {', '.join(begun)})" if begun else ""


def is_retried(run: dg.DagsterRun) -> bool:
    """Whether the run failed, and Dagster starts it again or has done so."""
    return run.status is dg.DagsterRunStatus.FAILURE and run.tags.get(WILL_RETRY_TAG) == "true"


def _is_ours(run: dg.DagsterRun) -> bool:
    """Other projects can keep their runs in the same database."""
    loaded = run.job_code_origin
    return (
        process_of(run) is not None
        or RECIPE_TAG in run.tags
        or (loaded is not None and DEFINITIONS in loaded.repository_origin.code_pointer.describe())
    )


def _is_lost(record: dg.RunRecord) -> bool:
    run = record.dagster_run
    process = process_of(run)
    if process is not None:
        return _is_gone(process)
    if not _is_ours(run):
        return False
    # The daemon itself watches the runs that wait for it or that it is starting.
    unwatched = run.status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED)
    return unwatched and datetime.datetime.now(datetime.UTC) - record.update_timestamp > CLAIMED_WITHIN


def _started(number: int) -> str:
    """When a process started: field 22 of /proc/<pid>/stat, behind a name in brackets. Empty if none."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else fields[18]
