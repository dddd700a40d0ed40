"""Evaluates the trained model."""

import dagster as dg

from pipeline.assets import benchmarks, check_results, checkpoints
from pipeline.assets.metadata import materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.pretrained_model import GPU_POOL
from pipeline.steps.model import evaluate
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.training_runs import checkpoint_name


def evaluation_asset() -> dg.AssetsDefinition:
    """The evaluation of the final checkpoint."""

    @dg.asset(
        key=keys.EVALUATION,
        deps=["pretrained_model"],
        group_name="model",
        kinds={"pytorch"},
        code_version=evaluate.VERSION,
        pool=GPU_POOL,
        check_specs=check_results.specs(keys.EVALUATION),
        description="Bits per byte on all held-out text, for each corpus and compared with `xz -9`, and "
        "samples of the model's text.",
    )
    @user_errors_as_failures
    def _asset(context: dg.AssetExecutionContext, workshop: PipelineResources) -> dg.MaterializeResult:
        store, recipe = workshop.store, workshop.recipe
        result = plan.result(store, store.current(keys.PRETRAINED_MODEL))
        benchmarks.record(context.op_execution_context, workshop, checkpoint_name(result["checkpoint"]))
        version = evaluate.evaluate(store, recipe.training.samples, recipe.evaluation.benchmarks)
        scores = evaluate.read(version)
        figures = {
            "bits per byte": scores["bits_per_byte"],
            "loss": scores["loss"],
            "perplexity": scores["perplexity"],
            **scores["compressors"],
            "held-out bytes": scores["held_out_bytes"],
        }
        tables: dict[str, dg.MetadataValue] = {
            "per corpus": checkpoints.per_corpus(scores),
            "samples": checkpoints.samples_shown(scores["samples"]),
        }
        if answered := scores.get("benchmarks"):
            tables["benchmarks"] = benchmarks.shown(answered)
        facts = {**checkpoints.rounded(figures), **tables}
        return materialized(version, facts, check_results.results(workshop, version))

    return _asset
