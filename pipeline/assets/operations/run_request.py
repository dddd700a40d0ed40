"""What a run of Dagster was asked for, by its job, its selection, its partition and its configuration."""

import re
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
