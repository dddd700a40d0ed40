"""Compares all training runs of the store in a table, and the variants of the recipe also in a picture."""

from typing import Any

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.asset import asset
from pipeline.assets.metadata import table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe import variants
from pipeline.recipe.recipe import BASE, recipe_path
from pipeline.reports import comparison, decide, verdicts
from pipeline.reports import variants as report
from pipeline.reports.images import as_text, inline
from pipeline.store import keys


@asset(
    "training_runs",
    [keys.EVALUATION],
    None,
    "All training runs in the store, the newest first, with the settings in which the runs of a recipe "
    "differ. `loss` and `bits per byte` are of the last validation in training, `seconds` are those spent in "
    "steps, and `on disk` is the number of checkpoints that have their weights. Materialize it to update the "
    "table.",
    kinds=["table"],
)
def training_runs_asset(
    context: dg.AssetExecutionContext, workshop: PipelineResources
) -> dg.MaterializeResult:
    """The table of all training runs, the newest first; each training updates it."""
    checkpoints.update_weights(context.instance, workshop.store)
    rows = report.rows(comparison.training_runs(workshop.store))
    return dg.MaterializeResult(metadata={"runs": table(rows, None if rows else {"run": "string"})})


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
    recipes = variants.load_all(recipe_path())
    compared_on, arms = decide.evidence(recipes)
    found = comparison.outcomes(recipes, decide.ranks(compared_on, arms.values()))
    facts: dict[str, Any] = {
        "variants": table(report.rows(found)),
        "curves": inline(as_text(report.draw(found)), "loss by tokens and by time"),
    }
    if arms and (judged := decide.against(compared_on, arms, BASE)):
        facts["verdicts"] = table([*verdicts.summary(arms, judged)])
        facts["control"] = verdicts.control(arms, judged)
    return dg.MaterializeResult(metadata=facts)
