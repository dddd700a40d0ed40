"""Evaluates single checkpoints on all held-out text: any one on request, and each new one automatically."""

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.metadata import materialized, user_errors_as_failures
from pipeline.assets.operations import orphaned_runs
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.pretrained_model import GPU_POOL
from pipeline.steps.model import evaluate as evaluate_flow
from pipeline.store import keys
from pipeline.store.training_runs import saved_steps

KEY = dg.AssetKey(keys.CHECKPOINT_EVALUATION)


def checkpoint_evaluation_asset() -> dg.AssetsDefinition:
    """An asset with one entry for each evaluated checkpoint."""

    @dg.asset(
        key=KEY,
        deps=[checkpoints.KEY],
        partitions_def=checkpoints.CHECKPOINTS,
        group_name="model",
        kinds={"pytorch"},
        code_version=evaluate_flow.VERSION,
        pool=GPU_POOL,
        description="Loss and bits per byte of one checkpoint on all held-out text, for each corpus.",
    )
    @user_errors_as_failures
    def _asset(context: dg.AssetExecutionContext, workshop: PipelineResources) -> dg.MaterializeResult:
        version = evaluate_flow.evaluate_checkpoint(workshop.store, context.partition_key)
        scores = evaluate_flow.read(version)
        figures = {
            "bits per byte": scores["bits_per_byte"],
            "loss": scores["loss"],
            "held-out tokens": scores["validation_tokens"],
        }
        facts = {**checkpoints.rounded(figures), "per corpus": checkpoints.per_corpus(scores)}
        return materialized(version, facts)

    return _asset


def new_checkpoint_sensor(job: str, training_job: str) -> dg.SensorDefinition:
    """Waits while a training run is in progress: it measures the validation loss itself, and its older
    checkpoints are about to be deleted.
    """

    @dg.sensor(
        name="checkpoint_saved",
        job_name=job,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts `evaluate` for each checkpoint that is still there when training has ended.",
    )
    def _sensor(context: dg.SensorEvaluationContext, workshop: PipelineResources) -> dg.SensorResult:
        if any(_trains(run, training_job) for run in orphaned_runs.under_way(context.instance)):
            return dg.SensorResult(skip_reason="a training run is in progress")
        known = set(context.instance.get_dynamic_partitions(checkpoints.CHECKPOINTS.name or ""))
        waiting = known - context.instance.get_materialized_partitions(KEY)
        # The checkpoint is the run key, so that a failed evaluation is not repeated at every tick.
        requests = [
            dg.RunRequest(run_key=key, partition_key=key)
            for key in saved_steps(workshop.store)
            if key in waiting
        ]
        reason = None if requests else "every checkpoint on disk has been evaluated"
        return dg.SensorResult(requests, skip_reason=reason)

    return _sensor


def _trains(run: dg.DagsterRun, job: str) -> bool:
    """Whether a run trains. An ad-hoc asset selection has no job name, so its selection decides."""
    if run.asset_selection:
        return dg.AssetKey(keys.PRETRAINED_MODEL) in run.asset_selection
    return run.job_name == job
