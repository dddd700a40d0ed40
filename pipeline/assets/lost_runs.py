"""Runs whose process is gone: Dagster would count them as running for ever, and they would keep the GPU's pool."""

import logging
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

log = logging.getLogger(__name__)

PROCESS_TAG = "groundwork/process"
UNDER_WAY = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


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
    instance.add_run_tags(run.run_id, {PROCESS_TAG: Process.this().tag()})


def report(instance: dg.DagsterInstance) -> list[str]:
    """Reports the runs whose process is gone as failed, and frees their pools; their ids."""
    lost = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY)):
        if PROCESS_TAG in run.tags and Process.from_tag(run.tags[PROCESS_TAG]).is_gone():
            instance.report_run_failed(run, "The process of this run is gone: it was killed, or the machine went down. What was finished is kept.")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            log.warning("run %s was killed: reported as failed", run.run_id[:8])
            lost.append(run.run_id)
    return lost


def _started(number: int) -> str:
    """Field 22 of /proc/<pid>/stat, after the name, which may hold spaces and brackets; empty when there is no such process (proc(5))."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else fields[18]
