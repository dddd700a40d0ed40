"""Puts together the assets, jobs, sensors and resources of a recipe."""

from collections.abc import Mapping, Sequence
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

CORPUS, PRETRAIN, SEARCH = "corpus", "pretrain", "search_mixture"
# What each job does, and the jobs whose assets it makes before its own.
MAKING: dict[str, tuple[str, tuple[str, ...]]] = {
    PRETRAIN: ("Updates everything that is out of date, then trains.", (CORPUS, RETOKENIZE)),
    CORPUS: ("Updates every corpus up to deduplication.", ()),
    RETOKENIZE: ("Updates the corpora and their token shards, and keeps the tokenizer.", (CORPUS,)),
    JOBS[SFT]: ("Teaches the pretrained model to answer.", ()),
    JOBS[DPO]: ("Teaches the pretrained model to answer, then which of two answers is better.", (JOBS[SFT],)),
    SEARCH: ("Looks for a better mixture with small runs on the token shards.", ()),
}
# What `define_asset_job` returns is of a class that Dagster does not export.
Job = Any


def definitions(used: UsedRecipe, executor: dg.ExecutorDefinition | None = None) -> dg.Definitions:
    """The definitions of a recipe. `executor` is for runs of chosen assets. Raises RecipeError."""
    allow_enough()
    retry_no_refused_run()
    recipes = load_all(used.path)
    recipe = recipes[BASE]
    made: dict[str, list[Asset]] = {}  # by the job that makes them first
    progress = []
    for section in ("", *recipe.post_training.sections):
        partitions = VariantPartitions(recipes, used, section)
        own = recipe.tuned(section) if section else recipe
        made |= {job: partitions.partitioned(assets) for job, assets in _assets(own, used).items()}
        progress.append(partitions.beside_the_model(progress_spec(own, used)))
    if searching := mixture_search_assets(recipe, used):
        made[SEARCH] = [*searching]
    # In the description of each job: which experiment these pages are about.
    place = default_store(recipe.store).files.place
    shown = f"Recipe `{recipe.name}` ({used.path.absolute()}), store {place}."
    checking = verify_job(shown, used)
    to_shards = [asset.key for job in (CORPUS, RETOKENIZE) for asset in made[job]]
    assets = [
        *(asset for of_job in made.values() for asset in of_job),
        *progress,
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


def _assets(recipe: Recipe, used: UsedRecipe) -> dict[str, list[Asset]]:
    """The assets of a recipe, or of a section of its `post_training`, by the job that makes them first."""
    to_dedup: list[Asset] = [
        *(source_asset(corpus, used, recipe.section) for corpus in recipe.corpora),
        *stage_assets(recipe, CORPUS, used),
    ]
    to_shards: list[Asset] = [tokenizer_asset(recipe, used), *stage_assets(recipe, RETOKENIZE, used)]
    model: list[Asset] = [
        pretrained_model_asset(recipe, used),
        evaluation_asset(recipe, used),
        exported_model_asset(recipe, used),
    ]
    if recipe.section:
        return {JOBS[recipe.section]: [*to_dedup, *to_shards, *model]}
    model += stage_assets(recipe, PRETRAIN, used)  # a section has none of its own
    return {CORPUS: to_dedup, RETOKENIZE: to_shards, PRETRAIN: model}


def _jobs(made: Mapping[str, Sequence[Asset]], used: UsedRecipe, shown: str) -> list[Job]:
    """The jobs, each in one process: a stage uses every core, so more would only add start-up time."""
    jobs = []
    for name, (what, before) in MAKING.items():
        if name not in made:
            continue
        assets = [asset for job in (*before, name) for asset in made.get(job, ())]
        jobs.append(
            dg.define_asset_job(
                used.name(name),
                [asset.key for asset in assets],
                tags={**tags(assets), **used.tags},
                description=f"{what} {shown}",
                executor_def=dg.in_process_executor,
            )
        )
    return jobs
