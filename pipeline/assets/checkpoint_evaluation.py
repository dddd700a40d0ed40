"""How good a saved step is, on all held-out text: of any checkpoint on request, and of each new one by
itself.
"""

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
    """One entry for each checkpoint that was evaluated."""

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
        found = evaluate_flow.read(version)
        figures = {
            "bits per byte": found["bits_per_byte"],
            "loss": found["loss"],
            "held-out tokens": found["validation_tokens"],
        }
        return materialized(
            version, {**checkpoints.rounded(figures), "per corpus": checkpoints.per_corpus(found)}
        )

    return _asset


def new_checkpoint_sensor(job: str, training_job: str) -> dg.SensorDefinition:
    """Waits while a training is under way: it validates as it goes, and its older checkpoints are about to be
    deleted.
    """

    @dg.sensor(
        name="checkpoint_saved",
        job_name=job,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts `evaluate` for each checkpoint that is kept once its training has ended.",
    )
    def _sensor(context: dg.SensorEvaluationContext, workshop: PipelineResources) -> dg.SensorResult:
        if any(_trains(run, training_job) for run in orphaned_runs.under_way(context.instance)):
            return dg.SensorResult(skip_reason="a training is under way")
        known = set(context.instance.get_dynamic_partitions(checkpoints.CHECKPOINTS.name or ""))
        evaluated = context.instance.get_materialized_partitions(KEY)
        found = [key for key in saved_steps(workshop.store) if key in known - evaluated]
        # The run key is the checkpoint: one that cannot be evaluated is not tried over and over.
        requests = [dg.RunRequest(run_key=key, partition_key=key) for key in found]
        return (
            dg.SensorResult(requests)
            if requests
            else dg.SensorResult(skip_reason="every checkpoint that is kept has been evaluated")
        )

    return _sensor


def _trains(run: dg.DagsterRun, job: str) -> bool:
    """Whether a run trains. A run of chosen assets has no job of ours: its selection decides."""
    if run.asset_selection:
        return dg.AssetKey(keys.PRETRAINED_MODEL) in run.asset_selection
    return run.job_name == job
