"""Evaluates the trained model, and single checkpoints: any one on request, and each new one automatically.

`checkpoint_evaluation` is an external asset, to which the job `evaluate` adds entries. If it could be
materialized, "Materialize all" would become a backfill of its partitions, of which a fresh store has none.
`benchmarks` is one like it, with the answers of checkpoints to the recipe's benchmarks, and exists only where
the recipe names some.
"""

import logging

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.asset import asset, check_results, given, user_errors_as_failures
from pipeline.assets.metadata import materialized, table
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.operations.runs import EVALUATE
from pipeline.assets.used_recipe import CHECKPOINT, EVALUATED, ON_DISK, UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.steps.corpus.evaluation_texts import EvaluationWindows
from pipeline.steps.model import benchmark, evaluate, tuned_model_text
from pipeline.steps.stage import Page
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.training_runs import CheckpointGoneError, checkpoint_name
from trainer.system import terminal

log = logging.getLogger(__name__)

PRETRAINED = (
    "Bits per byte on all held-out text, for each corpus and compared with `xz -9`, and samples of the "
    "model's text."
)
TUNED = "The model beside the one that it goes on with: losses on held-out text, and answers to read."
# The checkpoint was on disk when its run was queued. A training that resumes meanwhile deletes it.
QUEUED_TAGS = {"dagster/sensor_name", "dagster/backfill"}


def evaluation_asset(recipe: Recipe, used: UsedRecipe) -> dg.AssetsDefinition:
    """The evaluation of the final checkpoint."""

    @asset(
        keys.EVALUATION,
        Page(TUNED if recipe.base else PRETRAINED, ("pytorch",), "model"),
        # the texts are those of the pretraining, in every section
        [keys.PRETRAINED_MODEL, *(used.asset(text.key) for text in EvaluationWindows.all_of(recipe))],
        version=evaluate.VERSION,
        used=used,
        section=recipe.section,
        made_by=evaluate.evaluate,
        pool=used.pool,
    )
    def _evaluation(context: dg.AssetExecutionContext, workshop: PipelineResources) -> dg.MaterializeResult:
        store = workshop.store
        result = plan.result(store, store.current(keys.PRETRAINED_MODEL))
        record_benchmarks(context.op_execution_context, workshop, checkpoint_name(result["checkpoint"]))
        version = evaluate.evaluate(store, workshop.recipe)
        scores = evaluate.read(version)
        facts = checkpoints.evaluated(scores)
        if scores["samples"]:
            facts["samples"] = checkpoints.samples_shown(scores["samples"])
        if tuning := scores.get("tuning"):
            compared = {
                "before and after": table(tuned_model_text.losses(tuning)),
                "answers": table(tuned_model_text.kinds(tuning)),
                "answers cut off": " ".join(tuned_model_text.unended(tuning)) or "none",
                "conversations": dg.MetadataValue.md(tuned_model_text.conversations(tuning)),
            }
            facts = compared | facts
        if answered := scores.get("benchmarks"):
            facts["benchmarks"] = table(benchmark.table(answered))
        return materialized(version, facts, check_results(workshop, version))

    return _evaluation


def checkpoint_evaluation_spec(used: UsedRecipe) -> dg.AssetSpec:
    """The asset `checkpoint_evaluation`: one entry for each evaluated checkpoint."""
    return _spec(
        used,
        keys.CHECKPOINT_EVALUATION,
        version=evaluate.VERSION,
        description="Loss and bits per byte of one checkpoint on all held-out text, for each corpus. The job "
        "`evaluate` adds entries: its page has the checkpoints on disk as partitions.",
    )


def benchmarks_spec(recipe: Recipe, used: UsedRecipe) -> list[dg.AssetSpec]:
    """The asset `benchmarks`: one entry for each checkpoint that answered."""
    named = ", ".join(recipe.evaluation.titles)
    description = f"How well one checkpoint answers or predicts {named}. Training adds the last checkpoint, "
    description += "the job `evaluate` any other."
    return [_spec(used, keys.BENCHMARKS, version=benchmark.VERSION, description=description)] if named else []


def _spec(used: UsedRecipe, key: str, *, version: str, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        used.asset(key),
        deps=[dg.AssetDep(used.asset(CHECKPOINT), partition_mapping=dg.IdentityPartitionMapping())],
        partitions_def=used.partitions(EVALUATED),
        group_name=used.name("model"),
        kinds={"pytorch"},
        code_version=version,
        description=description,
    )


def evaluate_job(shown: str, used: UsedRecipe) -> dg.JobDefinition:
    """Evaluates the checkpoint that the partition names. Only checkpoints on disk are partitions. The
    description of the job ends in `shown`.
    """

    @dg.op(
        name=used.name(keys.CHECKPOINT_EVALUATION),
        pool=used.pool,
        description="Evaluates one checkpoint, and adds it to the asset `checkpoint_evaluation`.",
    )
    @user_errors_as_failures
    @given(used)
    def _op(context: dg.OpExecutionContext, workshop: PipelineResources) -> None:
        saved = checkpoints.update_weights(context.instance, workshop.store, used)
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
        with terminal.doing(f"{checkpoint}: evaluating"):
            version = evaluate.evaluate_checkpoint(workshop.store, checkpoint)
        facts = checkpoints.evaluated(evaluate.read(version))
        checkpoints.add_entry(context, used.asset(keys.CHECKPOINT_EVALUATION), checkpoint, version, facts)
        record_benchmarks(context, workshop, checkpoint)

    @dg.job(
        name=used.name(EVALUATE),
        partitions_def=used.partitions(ON_DISK),
        # there can be many, and a retried training run should not queue behind them
        tags={"dagster/priority": "-1", **used.tags},
        executor_def=dg.in_process_executor,
        description="Evaluates one saved step: choose it as the partition. There is one for each checkpoint "
        f"on disk. {shown}",
    )
    def _job() -> None:
        _op()

    return _job


def record_benchmarks(context: dg.OpExecutionContext, workshop: PipelineResources, checkpoint: str) -> None:
    """Scores a checkpoint on the recipe's benchmarks and evaluation texts, and adds the entry."""
    if not workshop.recipe.evaluation.titles:
        return
    asked = benchmark.of_recipe(workshop.store, workshop.recipe.evaluation)
    version = benchmark.benchmark_checkpoint(workshop.store, checkpoint, asked)
    found = benchmark.read(version)
    passed, said = benchmark.verdict(found)
    if not passed:
        log.warning("benchmarks: %s: %s", checkpoint, said)
    facts = {"benchmarks": table(benchmark.table(found)), "verdict": said}
    checkpoints.add_entry(context, workshop.used.asset(keys.BENCHMARKS), checkpoint, version, facts)
