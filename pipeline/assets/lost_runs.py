"""Which runs are under way. Dagster counts a run whose process is gone as running for ever, and lets it keep the GPU's pool."""

import datetime
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

log = logging.getLogger(__name__)

PROCESS_TAG = "groundwork/process"
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
UNDER_WAY = [status for status in dg.DagsterRunStatus if status not in ENDED]
CLAIMED_WITHIN = datetime.timedelta(minutes=10)  # a run that has started names its process within a second, or a minute on a machine at its limits


@dataclass(frozen=True)
class Process:
    """A process, told from every other one that ever had its number: `started` is in clock ticks since the machine booted."""

    host: str
    boot: str
    namespace: str
    number: int
    started: str

    @classmethod
    def this(cls) -> "Process":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(platform.node(), boot, Path("/proc/self/ns/pid").readlink().name, os.getpid(), _started(os.getpid()))

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
    """What claimed the run; None before that, when a run that is started again has a copy of its predecessor's tags."""
    run_id, _, process = run.tags.get(PROCESS_TAG, "").partition(" ")
    return Process.from_tag(process) if run_id == run.run_id else None


def under_way(instance: dg.DagsterInstance, job: str | None = None, tags: Mapping[str, str] | None = None) -> bool:
    """Whether a run that has not ended is of this job, or has these tags. Those whose process is gone are reported first."""
    report(instance)
    return bool(instance.get_runs(dg.RunsFilter(job_name=job, tags=dict(tags or {}), statuses=UNDER_WAY), limit=1))


def report(instance: dg.DagsterInstance) -> list[str]:
    """Reports the runs whose process is gone as failed, and frees their pools; their ids."""
    lost = [record.dagster_run for record in instance.get_run_records(dg.RunsFilter(statuses=UNDER_WAY)) if _is_lost(record)]
    for run in lost:
        instance.report_run_failed(run, "The process of this run is gone: it was killed, or the machine went down. What was finished is kept.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        log.warning("run %s was killed: reported as failed", run.run_id[:8])
    return [run.run_id for run in lost]


def _is_lost(record: dg.RunRecord) -> bool:
    run = record.dagster_run
    process = process_of(run)
    if process is not None:
        return process.is_gone()
    # Runs that wait for the daemon, or are being started by it, are watched by the daemon.
    by_itself = run.status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED)
    return by_itself and datetime.datetime.now(datetime.UTC) - record.update_timestamp > CLAIMED_WITHIN


def _started(number: int) -> str:
    """Field 22 of /proc/<pid>/stat, after the name, which may hold spaces and brackets; empty when there is no such process (proc(5))."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else fields[18]
