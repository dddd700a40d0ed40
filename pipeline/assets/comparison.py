"""Compares all training runs of the store in a table, and the variants of the recipe also in a picture."""

import base64
from typing import Any

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.asset import asset
from pipeline.assets.metadata import table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe import variants
from pipeline.recipe.recipe import recipe_path
from pipeline.reports import comparison
from pipeline.reports import variants as report
from pipeline.reports.images import inline
from pipeline.store import keys
from trainer.system.history import RunFigures

# The page of an asset shows about the first six; the others come into view by scrolling.
COLUMNS = {
    "run": "string",
    "recipe": "string",
    "settings that differ": "string",
    "bits per byte": "float",
    "loss": "float",
    "tokens": "int",
    "done": "string",
    "tokens/s": "float",
    "hours": "float",
    "on disk": "int",
}


@asset(
    "training_runs",
    [keys.EVALUATION],
    None,
    "All training runs in the store, the newest first, with the settings in which the runs of a recipe "
    "differ. `loss` and `bits per byte` are of the last validation in training, `hours` are those spent in "
    "steps, and `on disk` is the number of checkpoints that have their weights. Materialize it to update the "
    "table.",
    kinds=["table"],
)
def training_runs_asset(
    context: dg.AssetExecutionContext, workshop: PipelineResources
) -> dg.MaterializeResult:
    """The table of all training runs, the newest first; each training updates it."""
    checkpoints.update_weights(context.instance, workshop.store)
    found = comparison.training_runs(workshop.store)
    differing = comparison.differences_by_recipe(found)
    on_disk = comparison.checkpoints_on_disk(workshop.store)
    rows = [_row(run, differing[run.name], on_disk.get(run.name, 0)) for run in found]
    return dg.MaterializeResult(metadata={"runs": table(rows, COLUMNS)})


def _row(run: RunFigures, differing: str, on_disk: int) -> dict[str, Any]:
    scores = (run.bits_per_byte, run.validation_loss)
    values = (
        run.name,
        run.recipe,
        differing,
        *(None if score is None else round(score, 4) for score in scores),
        run.tokens,
        f"{run.tokens / run.planned_tokens:.0%}",
        round(run.tokens_per_second, 1),
        round(run.seconds / 3600, 4),
        on_disk,
    )
    return dict(zip(COLUMNS, values, strict=True))


@asset(
    "variants",
    [keys.EVALUATION],
    None,
    "The variants of the recipe side by side: the settings that differ, scores and cost, and their curves "
    f"over tokens and over time. {report.EXPLAINED} {report.OTHER_TEXT} Materialize it to update the table.",
    kinds=["table"],
)
def variant_comparison_asset() -> dg.MaterializeResult:
    """The table of all variants; each training updates it."""
    found = comparison.outcomes(variants.load_all(recipe_path()))
    picture = base64.b64encode(report.draw(found)).decode()
    return dg.MaterializeResult(
        metadata={
            "variants": table(report.rows(found)),
            "curves": inline(picture, "loss by tokens and by time"),
        }
    )
