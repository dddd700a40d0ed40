"""Compares the training runs of the store in a table."""

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.metadata import user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.reports import comparison
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


def training_runs_asset() -> dg.AssetsDefinition:
    """The table of all training runs, the newest first; each training updates it."""

    @dg.asset(
        key="training_runs",
        deps=[keys.EVALUATION],
        group_name="model",
        kinds={"table"},
        description="All training runs in the store, the newest first, with the settings in which the runs "
        "of a recipe differ. `loss` and `bits per byte` are of the last validation in training, `hours` are "
        "those spent in steps, and `on disk` is the number of checkpoints that have their weights. "
        "Materialize it to update the table.",
    )
    @user_errors_as_failures
    def _asset(context: dg.AssetExecutionContext, workshop: PipelineResources) -> dg.MaterializeResult:
        checkpoints.update_weights(context.instance, workshop.store)
        found = comparison.training_runs(workshop.store)
        differing = comparison.differences_by_recipe(found)
        on_disk = comparison.checkpoints_on_disk(workshop.store)
        rows = [_row(run, differing[run.name], on_disk.get(run.name, 0)) for run in found]
        schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in COLUMNS.items()])
        return dg.MaterializeResult(metadata={"runs": dg.MetadataValue.table(rows, schema)})

    return _asset


def _row(run: RunFigures, differing: str, on_disk: int) -> dg.TableRecord:
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
    return dg.TableRecord(dict(zip(COLUMNS, values, strict=True)))
