"""Evaluates the trained model."""

import dagster as dg

from pipeline.assets import check_results, checkpoints
from pipeline.assets.metadata import materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.pretrained_model import GPU_POOL
from pipeline.steps.model import evaluate
from pipeline.store import keys


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
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        version = evaluate.evaluate(workshop.store, workshop.recipe.training.samples)
        scores = evaluate.read(version)
        figures = {
            "bits per byte": scores["bits_per_byte"],
            "loss": scores["loss"],
            "perplexity": scores["perplexity"],
            **scores["compressors"],
            "held-out bytes": scores["held_out_bytes"],
        }
        tables = {
            "per corpus": checkpoints.per_corpus(scores),
            "samples": checkpoints.samples_shown(scores["samples"]),
        }
        facts = {**checkpoints.rounded(figures), **tables}
        return materialized(version, facts, check_results.results(workshop, version))

    return _asset
