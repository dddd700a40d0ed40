"""Which runs are under way. Dagster counts a run whose process is gone as running for ever, and lets it keep
the GPU's pool.
"""

import datetime
import logging
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

log = logging.getLogger(__name__)

PROCESS_TAG = "groundwork/process"
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
UNDER_WAY = [status for status in dg.DagsterRunStatus if status not in ENDED]
DEFINITIONS = "pipeline.definitions"
# a run that has started names its process within a second, or a minute on a machine at its limits
CLAIMED_WITHIN = datetime.timedelta(minutes=10)


@dataclass(frozen=True)
class Process:
    """A process, told from every other one that ever had its number: `started` is in clock ticks since the
    machine booted.
    """

    host: str
    boot: str
    namespace: str
    number: int
    started: str

    @classmethod
    def this(cls) -> "Process":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(
            platform.node(),
            boot,
            Path("/proc/self/ns/pid").readlink().name,
            os.getpid(),
            _started(os.getpid()),
        )

    @classmethod
    def from_tag(cls, tag: str) -> "Process":
        host, boot, namespace, number, started = tag.split()
        return cls(host, boot, namespace, int(number), started)

    def tag(self) -> str:
        return f"{self.host} {self.boot} {self.namespace} {self.number} {self.started}"

    def is_gone(self) -> bool:
        """False too for what cannot be seen from here: a process of another machine or container."""
        here = Process.this()
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        return self.namespace == here.namespace and _started(self.number) != self.started


def claim(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Notes on the run that this process executes it."""
    instance.add_run_tags(run.run_id, {PROCESS_TAG: f"{run.run_id} {Process.this().tag()}"})


def process_of(run: dg.DagsterRun) -> Process | None:
    """What claimed the run; None before that, when a run that is started again has a copy of its
    predecessor's tags.
    """
    run_id, _, process = run.tags.get(PROCESS_TAG, "").partition(" ")
    return Process.from_tag(process) if run_id == run.run_id else None


def under_way(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """The runs of this code that have not ended. Those whose process is gone are reported first."""
    report(instance)
    return [run for run in instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY)) if _is_ours(run)]


def report(instance: dg.DagsterInstance) -> list[str]:
    """Reports the runs whose process is gone as failed, or as canceled where somebody had stopped them, and
    frees their pools; their ids.
    """
    lost = [
        record.dagster_run
        for record in instance.get_run_records(dg.RunsFilter(statuses=UNDER_WAY))
        if _is_lost(record)
    ]
    for run in lost:
        # One that failed is started again.
        ended = (
            instance.report_run_canceled
            if run.status is dg.DagsterRunStatus.CANCELING
            else instance.report_run_failed
        )
        ended(
            run,
            "The process of this run is gone: it was killed, or the machine went down. What was finished is "
            "kept.",
        )
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        log.warning("run %s was killed: reported as ended", run.run_id[:8])
    return [run.run_id for run in lost]


def _is_ours(run: dg.DagsterRun) -> bool:
    """Other projects can keep their runs in the same database."""
    loaded = run.job_code_origin
    return process_of(run) is not None or (
        loaded is not None and DEFINITIONS in loaded.repository_origin.code_pointer.describe()
    )


def _is_lost(record: dg.RunRecord) -> bool:
    run = record.dagster_run
    process = process_of(run)
    if process is not None:
        return process.is_gone()
    if not _is_ours(run):
        return False
    # Runs that wait for the daemon, or are being started by it, are watched by the daemon.
    by_itself = run.status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED)
    return by_itself and datetime.datetime.now(datetime.UTC) - record.update_timestamp > CLAIMED_WITHIN


def _started(number: int) -> str:
    """Field 22 of /proc/<pid>/stat, after the name, which may hold spaces and brackets; empty when there is
    no such process (proc(5)).
    """
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else fields[18]
