"""What Dagster has recorded of a run: what it was asked for, what it waits for, which checks it reached."""

import re
import time
from collections.abc import Sequence
from typing import Any

import dagster as dg

from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.post_training import JOBS
from pipeline.store import keys
from pipeline.store.variant_names import BASE

PARENT_TAG = "dagster/parent_run_id"
PARTITION_TAG = "dagster/partition"
EVALUATE = "evaluate"  # the job
CHECK_HISTORY = 25  # runs, of which all but the last may have been killed before the check
CHECKPOINT = re.compile(r"[0-9a-f]{8}-\d{8,}")


def trains(run: dg.DagsterRun) -> bool:
    """Whether a run trains, or a section does. Without a job's name its selection decides."""
    if chosen := run.asset_selection:
        return any(key.path[-1] == keys.PRETRAINED_MODEL for key in chosen)
    return run.job_name.rpartition("_")[2] in ("pretrain", *JOBS.values())  # after a prefix


def retrains(run: dg.DagsterRun) -> bool:
    """Whether a run was asked for another tokenizer."""
    asked: Any = run.run_config.get("ops", {})
    return any((op.get("config") or {}).get("retrain", False) for op in asked.values())


def planned_steps(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Sequence[str]:
    """The keys of the steps that a run executes."""
    plan = run.execution_plan_snapshot_id
    return instance.get_execution_plan_snapshot(plan).step_keys_to_execute if plan else ()


def variant_of(run: dg.DagsterRun | None, used: UsedRecipe) -> str:
    """The variant that a run is for. Partitions of the job `evaluate` are checkpoints, not variants, even
    where they are mistyped. Other assets of the same project can have partitions of their own.
    """
    partition = run.tags.get(PARTITION_TAG) if run else None
    if run is None or partition is None or CHECKPOINT.fullmatch(partition):
        return BASE
    if run.job_name == used.name(EVALUATE):
        return BASE
    others = used.file and partition not in load_recipe(used.path).all_variants
    return BASE if others else partition


def waits_for_pool(instance: dg.DagsterInstance, pool: str, own_run: str) -> str | None:
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


def restore_unreached_checks(instance: dg.DagsterInstance, run_id: str) -> None:
    """Reports the last result again of every check that the run planned and did not evaluate. The UI would
    show each as "Execution failed", though nothing has changed.
    """
    evaluation = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    planned, evaluated = (
        [entry.dagster_event for entry in instance.all_logs(run_id, kind) if entry.dagster_event]
        for kind in (dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, evaluation)
    )
    reached = {event.asset_check_evaluation_data.asset_check_key for event in evaluated}
    for key in {event.asset_check_planned_data.asset_check_key for event in planned} - reached:
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=CHECK_HISTORY)
        events = (record.event.dagster_event for record in history if record.event)
        last = next((event for event in events if event and event.event_type is evaluation), None)
        if last:
            instance.report_runless_asset_event(last.asset_check_evaluation_data)
