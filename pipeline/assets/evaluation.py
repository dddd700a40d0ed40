"""How good the trained model is."""

import dagster as dg

from pipeline.assets import checkpoints, checks
from pipeline.assets.metadata import materialized, user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.pretrained_model import GPU_POOL
from pipeline.steps.model import evaluate as evaluate_flow
from pipeline.store import keys


def evaluation_asset() -> dg.AssetsDefinition:
    """Evaluates the final checkpoint."""

    @dg.asset(
        key=keys.EVALUATION,
        deps=["pretrained_model"],
        group_name="model",
        kinds={"pytorch"},
        code_version=evaluate_flow.VERSION,
        pool=GPU_POOL,
        check_specs=checks.specs(keys.EVALUATION),
        description="Bits per byte on all held-out text, for each corpus and beside `xz -9`, and samples "
        "that the model writes.",
    )
    @user_errors_as_failures
    def _asset(workshop: PipelineResources) -> dg.MaterializeResult:
        version = evaluate_flow.evaluate(workshop.store, workshop.recipe.training.samples)
        found = evaluate_flow.read(version)
        figures = {
            "bits per byte": found["bits_per_byte"],
            "loss": found["loss"],
            **found["compressors"],
            "held-out bytes": found["held_out_bytes"],
        }
        tables = {
            "per corpus": checkpoints.per_corpus(found),
            "samples": checkpoints.samples_shown(found["samples"]),
        }
        facts = {**checkpoints.rounded(figures), **tables}
        return materialized(version, facts, checks.results(workshop, version))

    return _asset
