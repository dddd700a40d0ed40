"""Compares the variants of a recipe in a table and a picture."""

import base64

import dagster as dg

from pipeline.assets.metadata import user_errors_as_failures
from pipeline.recipe import variants
from pipeline.recipe.recipe import recipe_path
from pipeline.reports import comparison
from pipeline.reports import variants as report
from pipeline.reports.images import inline
from pipeline.store import keys


def variant_comparison_asset() -> dg.AssetsDefinition:
    """The table of all variants; each training updates it."""

    @dg.asset(
        key="variants",
        deps=[keys.EVALUATION],
        group_name="model",
        kinds={"table"},
        description="The variants of the recipe side by side: the settings that differ, scores and cost, and "
        f"their curves over tokens and over time. {report.EXPLAINED} {report.OTHER_TEXT} Materialize it to "
        "update the table.",
    )
    @user_errors_as_failures
    def _asset() -> dg.MaterializeResult:
        found = comparison.outcomes(variants.load_all(recipe_path()))
        rows = report.rows(found)
        schema = dg.TableSchema([dg.TableColumn(name, "string") for name in rows[0]])
        table = dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema)
        picture = base64.b64encode(report.draw(found)).decode()
        return dg.MaterializeResult(
            metadata={"variants": table, "curves": inline(picture, "loss by tokens and by time")}
        )

    return _asset
