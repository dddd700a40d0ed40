"""Trains the model, and reports the mixture, the result and the curves of the run."""

from dataclasses import asdict
from typing import Any

import dagster as dg

from pipeline.assets import checkpoints, progress
from pipeline.assets.asset import asset
from pipeline.assets.metadata import materialized, table
from pipeline.assets.operations.resources import TAG_LENGTH, TRAINING_TAG, PipelineResources
from pipeline.assets.trainer_process import TrainerProcess
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.reports import branches
from pipeline.reports.images import as_text, inline, sparkline
from pipeline.steps.model import funnel, training_plots
from pipeline.steps.stage import Page
from pipeline.steps.stages import final_assets
from pipeline.steps.tokens.token_index import TokenIndex
from pipeline.steps.training import merging, plan
from pipeline.steps.training.effort import HOUR, Effort
from pipeline.steps.training.launcher import Launcher
from pipeline.store import keys
from pipeline.store.cleanup.gc import bytes_below
from pipeline.store.manifest import Version
from trainer.system.run_history import RunHistory

TRAINED = {
    "": "pretrained on the token shards",
    "sft": "pretrained, and taught to answer",
    "dpo": "taught which of two answers is better",
}


def pretrained_model_asset(recipe: Recipe, used: UsedRecipe) -> dg.AssetsDefinition:
    """The finished training run, or the mean of its last checkpoints. An interrupted run resumes from its
    newest complete checkpoint.
    """
    base = [used.asset(keys.PRETRAINED_MODEL, recipe.base.section)] if recipe.base else []

    @asset(
        keys.PRETRAINED_MODEL,
        Page(
            f"A Llama-style decoder, {TRAINED[recipe.section]} by `python -m trainer` in its own process. "
            f"While it trains, `{progress.KEY}` shows its progress.",
            ("pytorch",),
            "model",
        ),
        # the index, if the recipe wants one, so that samples of checkpoints are traced
        [keys.TOKENIZER, *final_assets(recipe), *(index.key for index in TokenIndex.all_of(recipe)), *base],
        version=plan.VERSION,
        used=used,
        section=recipe.section,
        pool=used.pool,
    )
    def _asset(context: dg.AssetExecutionContext, workshop: PipelineResources) -> dg.MaterializeResult:
        run = plan.plan(workshop.store, workshop.recipe, workshop.called)
        context.instance.add_run_tags(context.run.run_id, {TRAINING_TAG: run.config.name[-TAG_LENGTH:]})
        # before training: afterwards, other shards may be in use
        mixture = table(map(asdict, plan.contributions(workshop.store, workshop.recipe)))
        version = plan.finished(workshop.store, plan.PretrainedModel(workshop.recipe).work(workshop.store))
        if version is None:
            version = plan.finished(workshop.store, run.work) or _trained(context, workshop, run)
            if run.config.training.averaged_steps:
                version = merging.of_recipe(workshop.store, workshop.recipe, run, version)
        checkpoints.record_saved(context, run, used)
        if run.config.training.averaged_steps:
            run = merging.run_of(workshop.store, version)
            checkpoints.record(context, run, merging.reported(workshop.store, version), [], used)
        facts = _facts(workshop, run, version, mixture)
        return materialized(version, facts, bytes_on_disk=bytes_below([run.config.run_dir]))

    return _asset


def _facts(
    workshop: PipelineResources, run: plan.PlannedRun, version: Version, mixture: dg.TableMetadataValue
) -> dict[str, Any]:
    """What the UI shows of a model."""
    result = plan.result(workshop.store, version)
    effort = Effort.of(version, workshop.recipe.launch.usd_per_hour)  # over all attempts
    pictures = {title: dg.MetadataValue.md(text) for title, text in _pictures(run, version).items()}
    trunks = RunHistory(run.config.run_dir).trunks
    return {
        "loss": pictures.pop("loss"),
        **checkpoints.scores(checkpoints.smoothed(result, run.config.run_dir)),
        "step": result["step"],
        "tokens": result["tokens"],
        **({"went on from": branches.described(trunks[-1])} if trunks else {}),
        "tokens/s": effort.tokens_per_second,
        "hours": round(effort.seconds / HOUR, 3),
        **({} if effort.usd is None else {"cost USD": round(effort.usd, 2)}),
        "mixture": mixture,
        "training run": run.config.name,
        # behind a click
        **pictures,
        "checkpoint": dg.MetadataValue.path(result["checkpoint"]),
    }


def _trained(context: dg.AssetExecutionContext, workshop: PipelineResources, run: plan.PlannedRun) -> Version:
    """Trains to the last step, and returns the finished run."""
    workshop.check_nodes()
    plan.check(workshop.store, workshop.recipe)
    run.write_config()
    workshop.release_data()
    launcher = Launcher(workshop.recipe.launch, run.config.training.threads)
    with plan.at_hand(workshop.store, workshop.recipe, run) as check_claim:
        trainer_process = TrainerProcess(context, run, launcher, workshop.used)
        seconds = trainer_process.train(check_claim)
        workshop.hold_data()  # it is evaluated and exported
    return plan.finish(workshop.store, run, trainer_process.last_checkpoint, seconds)


def _pictures(run: plan.PlannedRun, version: Version) -> dict[str, str]:
    """Drawn once for each version: a long run has many metrics to read."""

    def draw() -> dict[str, str]:
        history = RunHistory(run.config.run_dir)
        stages = funnel.draw(funnel.of_lineage(run.config.lineage))
        return {
            "loss": sparkline(history.losses),
            "curves": inline(as_text(training_plots.draw(history)), "curves"),
            "from source to tokens": inline(as_text(stages), "from source to tokens"),
        }

    pictures: dict[str, str] = version.report("training", "training-3", draw)
    loss_curve = inline(as_text((run.config.run_dir / "loss.png").read_bytes()), "loss curve")
    return pictures | {"loss curve": loss_curve}
