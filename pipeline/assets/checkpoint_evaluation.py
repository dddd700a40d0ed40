"""Evaluates single checkpoints on all held-out text: any one on request, and each new one automatically."""

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.metadata import materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.pretrained_model import GPU_POOL
from pipeline.steps.model import evaluate
from pipeline.store import keys

KEY = dg.AssetKey(keys.CHECKPOINT_EVALUATION)


def checkpoint_evaluation_asset() -> dg.AssetsDefinition:
    """An asset with one entry for each evaluated checkpoint."""

    @dg.asset(
        key=KEY,
        deps=[checkpoints.KEY],
        partitions_def=checkpoints.CHECKPOINTS,
        group_name="model",
        kinds={"pytorch"},
        code_version=evaluate.VERSION,
        pool=GPU_POOL,
        description="Loss and bits per byte of one checkpoint on all held-out text, for each corpus.",
    )
    @user_errors_as_failures
    def _asset(context: dg.AssetExecutionContext, workshop: PipelineResources) -> dg.MaterializeResult:
        version = evaluate.evaluate_checkpoint(workshop.store, context.partition_key)
        scores = evaluate.read(version)
        figures = {
            "bits per byte": scores["bits_per_byte"],
            "loss": scores["loss"],
            "perplexity": scores["perplexity"],
            "held-out tokens": scores["validation_tokens"],
        }
        facts = {**checkpoints.rounded(figures), "per corpus": checkpoints.per_corpus(scores)}
        return materialized(version, facts)

    return _asset
