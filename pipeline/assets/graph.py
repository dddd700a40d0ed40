"""Puts together the assets, jobs, sensors and resources of a recipe."""

from dataclasses import dataclass
from typing import Any

import dagster as dg

from pipeline.assets.checkpoints import checkpoint_spec
from pipeline.assets.evaluation import (
    benchmarks_spec,
    checkpoint_evaluation_spec,
    evaluate_job,
    evaluation_asset,
)
from pipeline.assets.exported_model import exported_model_asset
from pipeline.assets.leaderboard import leaderboard_spec
from pipeline.assets.mixture_search import mixture_search_assets
from pipeline.assets.operations.edited_recipe import retry_no_refused_run
from pipeline.assets.operations.resources import checked, with_values_of
from pipeline.assets.operations.sensors import (
    RETOKENIZE,
    alert_sensors,
    corpora_changed_sensor,
    new_checkpoint_sensor,
    nightly_schedule,
)
from pipeline.assets.operations.verification import daily_schedule, verify_job
from pipeline.assets.owners import with_owners
from pipeline.assets.pretrained_model import pretrained_model_asset
from pipeline.assets.progress import progress_spec
from pipeline.assets.stages import source_asset, stage_assets
from pipeline.assets.tokenizer import tokenizer_asset
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.assets.variants import Asset, VariantPartitions, tags
from pipeline.recipe.post_training import DPO, JOBS, SFT
from pipeline.recipe.recipe import Recipe
from pipeline.recipe.variants import load_all
from pipeline.store.store import default_store
from pipeline.store.variant_names import BASE
from trainer.system.open_files import allow_enough

# What the job of a section of `post_training` does; it makes those before it, too.
TUNING = {
    SFT: "Teaches the pretrained model to answer.",
    DPO: "Teaches the pretrained model to answer, then which of two answers is better.",
}
# What `define_asset_job` returns is of a class that Dagster does not export.
Job = Any


@dataclass(frozen=True)
class _Assets:
    """The assets of a recipe that runs make, by the job that makes them first."""

    to_dedup: list[Asset]
    to_shards: list[Asset]
    model: list[Asset]
    searching: list[Asset]
    tuning: dict[str, list[Asset]]  # by the section of `post_training`


def definitions(used: UsedRecipe, executor: dg.ExecutorDefinition | None = None) -> dg.Definitions:
    """The definitions of a recipe. `executor` is for runs of chosen assets. Raises RecipeError."""
    allow_enough()
    retry_no_refused_run()
    recipes = load_all(used.path)
    recipe = recipes[BASE]
    partitions = {
        section: VariantPartitions(recipes, used, section) for section in ("", *recipe.post_training.sections)
    }
    made = _assets(recipe, used, partitions)
    # In the description of each job: which experiment these pages are about.
    place = default_store(recipe.store).files.place
    shown = f"Recipe `{recipe.name}` ({used.path.absolute()}), store {place}."
    checking = verify_job(shown, used)
    to_shards = [asset.key for asset in made.to_shards]
    assets = [
        *made.to_shards,
        *made.model,
        *made.searching,
        *(asset for assets in made.tuning.values() for asset in assets),
        *(
            partitions[section].beside_the_model(
                progress_spec(recipe.tuned(section) if section else recipe, used)
            )
            for section in partitions
        ),
        checkpoint_spec(recipe, used),
        leaderboard_spec(used),
        checkpoint_evaluation_spec(used),
        *benchmarks_spec(recipe, used),
    ]
    return dg.Definitions(
        assets=with_owners(assets, recipe, used),
        jobs=[*_jobs(made, used, shown), evaluate_job(shown, used), checking],
        sensors=[corpora_changed_sensor(to_shards, used), new_checkpoint_sensor(used), *alert_sensors(used)],
        schedules=[
            nightly_schedule(to_shards, recipe.timezone, used),
            daily_schedule(checking, recipe.timezone, used),
        ],
        resources={used.workshop: checked(with_values_of(recipe, used))},
        executor=executor,
    )


def _assets(recipe: Recipe, used: UsedRecipe, partitions: dict[str, VariantPartitions]) -> _Assets:
    to_dedup: list[Asset] = [
        *(source_asset(corpus, used) for corpus in recipe.corpora),
        *stage_assets(recipe, "corpus", used),
    ]
    to_shards = [*to_dedup, tokenizer_asset(recipe, used), *stage_assets(recipe, "retokenize", used)]
    model: list[Asset] = [
        pretrained_model_asset(recipe, used),
        *stage_assets(recipe, "pretrain", used),
        evaluation_asset(recipe, used),
        exported_model_asset(recipe, used),
    ]
    to_dedup, to_shards, model = map(partitions[""].partitioned, (to_dedup, to_shards, model))
    tuning = {
        section: partitions[section].partitioned(_tuning(recipe.tuned(section), used))
        for section in recipe.post_training.sections
    }
    return _Assets(to_dedup, to_shards, model, [*mixture_search_assets(recipe, used)], tuning)


def _tuning(tuned: Recipe, used: UsedRecipe) -> list[Asset]:
    return [
        *(source_asset(corpus, used, tuned.section) for corpus in tuned.corpora),
        *stage_assets(tuned, "corpus", used),
        tokenizer_asset(tuned, used),
        *stage_assets(tuned, "retokenize", used),
        pretrained_model_asset(tuned, used),
        evaluation_asset(tuned, used),
        exported_model_asset(tuned, used),
    ]


def _jobs(made: _Assets, used: UsedRecipe, shown: str) -> list[Job]:
    """The jobs, each in one process: a stage uses every core, so more would only add start-up time."""

    def job(name: str, assets: list[Asset], what: str) -> Job:
        return dg.define_asset_job(
            used.name(name),
            [asset.key for asset in assets],
            tags={**tags(assets), **used.tags},
            description=f"{what} {shown}",
            executor_def=dg.in_process_executor,
        )

    jobs = [
        job(
            "pretrain", [*made.to_shards, *made.model], "Updates everything that is out of date, then trains."
        ),
        job("corpus", made.to_dedup, "Updates every corpus up to deduplication."),
        job(
            RETOKENIZE, made.to_shards, "Updates the corpora and their token shards, and keeps the tokenizer."
        ),
    ]
    tuned: list[Asset] = []
    for section, assets in made.tuning.items():
        tuned = [*tuned, *assets]
        jobs.append(job(JOBS[section], tuned, TUNING[section]))
    if made.searching:
        what = "Looks for a better mixture with small runs on the token shards."
        jobs.append(job("search_mixture", made.searching, what))
    return jobs
