"""Evaluates single checkpoints on all held-out text: any one on request, and each new one automatically.

`checkpoint_evaluation` is an external asset, to which the job `evaluate` adds entries. If it could be
materialized, "Materialize all" would become a backfill of its partitions, of which a fresh store has none.
"""

from typing import Any

import dagster as dg

from pipeline.assets import benchmarks, checkpoints
from pipeline.assets.metadata import user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.pretrained_model import GPU_POOL
from pipeline.steps.model import evaluate
from pipeline.store import keys
from pipeline.store.training_runs import CheckpointGoneError

# The checkpoint was on disk when its run was queued. A training that resumes meanwhile deletes it.
QUEUED_TAGS = {"dagster/sensor_name", "dagster/backfill"}


def checkpoint_evaluation_spec() -> dg.AssetSpec:
    """The asset `checkpoint_evaluation`: one entry for each evaluated checkpoint."""
    return dg.AssetSpec(
        checkpoints.EVALUATION_KEY,
        deps=[dg.AssetDep(checkpoints.KEY, partition_mapping=dg.IdentityPartitionMapping())],
        partitions_def=checkpoints.EVALUATIONS,
        group_name="model",
        kinds={"pytorch"},
        code_version=evaluate.VERSION,
        description="Loss and bits per byte of one checkpoint on all held-out text, for each corpus. The "
        "job `evaluate` adds entries: its page has the checkpoints on disk as partitions.",
    )


def evaluate_job(name: str, config: dict[str, Any], used: str) -> dg.JobDefinition:
    """Evaluates the checkpoint that the partition names. Only checkpoints on disk are partitions. The
    description of the job ends in `used`.
    """

    @dg.op(
        name=keys.CHECKPOINT_EVALUATION,
        pool=GPU_POOL,
        description="Evaluates one checkpoint, and adds it to the asset `checkpoint_evaluation`.",
    )
    @user_errors_as_failures
    def _op(context: dg.OpExecutionContext, workshop: PipelineResources) -> None:
        saved = checkpoints.update_weights(context.instance, workshop.store)
        if not context.has_partition_key:
            raise CheckpointGoneError(
                "choose a checkpoint: the partition in the UI, or in a terminal "
                f'--tags \'{{"dagster/partition": "NAME"}}\'. On disk: {", ".join(saved[-5:]) or "none"}'
            )
        checkpoint = context.partition_key
        if checkpoint not in saved and not QUEUED_TAGS.isdisjoint(context.run.tags):
            context.log.info(
                f"{checkpoint} was deleted while its evaluation was waiting: nothing to evaluate"
            )
            return
        version = evaluate.evaluate_checkpoint(workshop.store, checkpoint)
        scores = evaluate.read(version)
        figures = {
            "bits per byte": scores["bits_per_byte"],
            "loss": scores["loss"],
            "perplexity": scores["perplexity"],
            "held-out tokens": scores["validation_tokens"],
        }
        facts = {**checkpoints.rounded(figures), "per corpus": checkpoints.per_corpus(scores)}
        checkpoints.add_entry(context, checkpoints.EVALUATION_KEY, checkpoint, version, facts)
        benchmarks.record(context, workshop, checkpoint)

    @dg.job(
        name=name,
        partitions_def=checkpoints.ON_DISK,
        config=config,
        # there can be many, and a retried training run should not queue behind them
        tags={"dagster/priority": "-1"},
        description="Evaluates one saved step: choose it as the partition. There is one for each checkpoint "
        f"on disk. {used}",
    )
    def _job() -> None:
        _op()

    return _job
