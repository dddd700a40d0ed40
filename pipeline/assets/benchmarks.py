"""The answers of checkpoints to the recipe's benchmarks: of the last one in `pretrain`, of any by `evaluate`.

`benchmarks` is an external asset like `checkpoint_evaluation`, and exists only where the recipe names some.
"""

import logging

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.metadata import user_errors_as_failures
from pipeline.assets.operations.resources import PipelineResources
from pipeline.recipe.recipe import Recipe
from pipeline.steps.model import benchmark
from pipeline.store.manifest import Version

log = logging.getLogger(__name__)

CHECK = "better_than_chance"


def benchmarks_spec(recipe: Recipe) -> list[dg.AssetSpec]:
    """The asset `benchmarks`: one entry for each checkpoint that answered."""
    if not recipe.evaluation.benchmarks:
        return []
    named = ", ".join(one.title for one in recipe.evaluation.benchmarks)
    return [
        dg.AssetSpec(
            checkpoints.BENCHMARKS_KEY,
            deps=[dg.AssetDep(checkpoints.KEY, partition_mapping=dg.IdentityPartitionMapping())],
            partitions_def=checkpoints.EVALUATIONS,
            group_name="model",
            kinds={"pytorch"},
            code_version=benchmark.VERSION,
            description=f"How well one checkpoint answers {named}. Training adds the last checkpoint, "
            "the job `evaluate` any other.",
        )
    ]


def benchmarks_check(recipe: Recipe) -> list[dg.AssetChecksDefinition]:
    """The check of `benchmarks`. Each entry brings a result; run by itself it looks at the newest entry."""
    if not recipe.evaluation.benchmarks:
        return []

    @dg.asset_check(
        asset=checkpoints.BENCHMARKS_KEY,
        name=CHECK,
        description="The interval of an accuracy lies above what a choice by lot would reach.",
    )
    @user_errors_as_failures
    def _check(context: dg.AssetCheckExecutionContext, workshop: PipelineResources) -> dg.AssetCheckResult:
        entry = context.instance.get_latest_materialization_event(checkpoints.BENCHMARKS_KEY)
        if entry is None or not entry.partition:
            return dg.AssetCheckResult(
                passed=True, severity=dg.AssetCheckSeverity.WARN, description="no checkpoint answered yet"
            )
        version = answers(workshop, entry.partition)
        passed, said = benchmark.verdict(benchmark.read(version))
        return dg.AssetCheckResult(
            passed=passed, severity=dg.AssetCheckSeverity.WARN, description=f"{entry.partition}: {said}"
        )

    return [_check]


def answers(workshop: PipelineResources, checkpoint: str) -> Version:
    return benchmark.benchmark_checkpoint(workshop.store, checkpoint, workshop.recipe.evaluation.benchmarks)


def record(context: dg.OpExecutionContext, workshop: PipelineResources, checkpoint: str) -> None:
    """Lets a checkpoint answer the benchmarks of the recipe, if it names any, and adds the entry."""
    if not workshop.recipe.evaluation.benchmarks:
        return
    version = answers(workshop, checkpoint)
    found = benchmark.read(version)
    passed, said = benchmark.verdict(found)
    if not passed:
        log.warning("benchmarks: %s: %s", checkpoint, said)
    facts = {"benchmarks": shown(found), "verdict": said}
    checkpoints.add_entry(context, checkpoints.BENCHMARKS_KEY, checkpoint, version, facts)
    context.log_event(
        dg.AssetCheckEvaluation(  # type: ignore[arg-type]  # log_event takes it, its annotation does not
            asset_key=checkpoints.BENCHMARKS_KEY,
            check_name=CHECK,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"{checkpoint}: {said}",
            metadata={},
        )
    )


def shown(found: dict[str, benchmark.Scores]) -> dg.TableMetadataValue:
    """The scores as a table; a star marks the accuracy that is compared with chance."""
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in benchmark.table(found)])
