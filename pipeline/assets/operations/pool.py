"""The pool in which trainings take turns."""

import time

import dagster as dg


def warning(instance: dg.DagsterInstance, pool: str, own_run: str) -> str | None:
    """What a person must know before a run that will wait for another one to train."""
    taken = instance.event_log_storage.get_concurrency_info(pool)
    others = [slot.run_id for slot in taken.claimed_slots if slot.run_id != own_run]
    record = instance.get_run_record_by_id(others[0]) if others else None
    if record is None or len(others) < taken.slot_count:
        return None
    run, since = record.dagster_run, time.strftime("%Y-%m-%d %H:%M", time.localtime(record.start_time))
    return (
        f"run {run.run_id[:8]} of the job {run.job_name}, under way since {since}, holds the pool {pool!r}: "
        "this run prepares its data now, starts training only after that one ends, and overruns a deadline "
        "by as long; to go first, stop that one, with Ctrl-C where it was started or with Terminate in the UI"
    )
