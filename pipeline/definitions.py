"""The Dagster code location: puts together the assets, jobs, sensors and resources of the recipe in use."""

# ruff: noqa: E402, since what follows takes a second, in which a person sees what is going on
import gc
from typing import Any

from pipeline.assets.operations.console import (
    explain_on_exit,
    keep_output_after_ctrl_c,
    show_activities,
    use_by_default,
)

show_activities()

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
from pipeline.assets.operations.history import keep_index_open
from pipeline.assets.operations.resources import checked, with_values_of
from pipeline.assets.operations.sensors import (
    corpora_changed_sensor,
    disk_nearly_full,
    new_checkpoint_sensor,
    nightly_schedule,
    run_failed,
    training_finished,
)
from pipeline.assets.operations.verification import daily_schedule, verify_job
from pipeline.assets.pretrained_model import pretrained_model_asset
from pipeline.assets.progress import progress_spec
from pipeline.assets.stages import source_asset, stage_assets
from pipeline.assets.tokenizer import tokenizer_asset
from pipeline.assets.variants import VariantPartitions, tags
from pipeline.recipe.loading import recipe_path
from pipeline.recipe.post_training import DPO, JOBS, SFT
from pipeline.recipe.recipe import BASE
from pipeline.recipe.variants import load_all
from pipeline.store.store import default_store
from trainer.system.open_files import allow_enough

explain_on_exit()
allow_enough()
keep_index_open()
use_by_default()
keep_output_after_ctrl_c()
recipes = load_all(recipe_path())
recipe = recipes[BASE]
# In the description of each job: which experiment these pages are about.
SHOWN = (
    f"Recipe `{recipe.name}` ({recipe_path().absolute()}), store {default_store(recipe.store).files.place}."
)

# What the job of a section of `post_training` does; it makes those before it, too.
TUNING = {
    SFT: "Teaches the pretrained model to answer.",
    DPO: "Teaches the pretrained model to answer, then which of two answers is better.",
}

Job = Any  # what `define_asset_job` returns is a class that Dagster does not export
Asset = dg.AssetsDefinition | dg.SourceAsset
to_dedup: list[Asset] = [*map(source_asset, recipe.corpora), *stage_assets(recipe, "corpus")]
to_shards: list[Asset] = [*to_dedup, tokenizer_asset(recipe), *stage_assets(recipe, "retokenize")]
model: list[Asset] = [
    pretrained_model_asset(recipe),
    *stage_assets(recipe, "pretrain"),
    evaluation_asset(recipe),
    exported_model_asset(recipe),
]
tuning: dict[str, list[Asset]] = {
    section: [
        *(source_asset(corpus, section) for corpus in tuned.corpora),
        *stage_assets(tuned, "corpus"),
        tokenizer_asset(tuned),
        *stage_assets(tuned, "retokenize"),
        pretrained_model_asset(tuned),
        evaluation_asset(tuned),
        exported_model_asset(tuned),
    ]
    for section, tuned in ((name, recipe.tuned(name)) for name in recipe.post_training.sections)
}
partitions = {section: VariantPartitions(recipes, section) for section in ("", *tuning)}
to_dedup, to_shards, model = map(partitions[""].partitioned, (to_dedup, to_shards, model))
tuning = {section: partitions[section].partitioned(assets) for section, assets in tuning.items()}
searching = mixture_search_assets(recipe)

checking = verify_job("verify", SHOWN)


def update_job(name: str, made: list[Asset], what: str) -> Job:
    """A job that makes what is out of date."""
    return dg.define_asset_job(name, made, tags=tags(made), description=f"{what} {SHOWN}")


jobs: list[Job] = [
    update_job("pretrain", [*to_shards, *model], "Updates everything that is out of date, then trains."),
    update_job("corpus", to_dedup, "Updates every corpus up to deduplication."),
    update_job(
        "retokenize", to_shards, "Updates the corpora and their token shards, and keeps the tokenizer."
    ),
]
jobs += [evaluate_job("evaluate", SHOWN), checking]
tuned_assets: list[Asset] = []
for section in tuning:
    tuned_assets = [*tuned_assets, *tuning[section]]
    jobs.append(update_job(JOBS[section], tuned_assets, TUNING[section]))
if searching:
    jobs.append(
        dg.define_asset_job(
            "search_mixture",
            searching,
            description=f"Looks for a better mixture with small runs on the token shards. {SHOWN}",
        )
    )

defs = dg.Definitions(
    assets=[
        *to_shards,
        *model,
        *searching,
        *tuned_assets,
        *(
            partitions[section].beside_the_model(progress_spec(recipe.tuned(section) if section else recipe))
            for section in partitions
        ),
        checkpoint_spec(recipe),
        leaderboard_spec(),
        checkpoint_evaluation_spec(),
        *benchmarks_spec(recipe),
    ],
    jobs=jobs,
    sensors=[
        corpora_changed_sensor("retokenize", [asset.key for asset in to_shards]),
        new_checkpoint_sensor("evaluate"),
        run_failed,
        training_finished,
        disk_nearly_full,
    ],
    schedules=[nightly_schedule("retokenize", [asset.key for asset in to_shards]), daily_schedule(checking)],
    resources={"workshop": checked(with_values_of(recipe))},
    # Each stage uses every core itself, so a process for each step would only add its start-up time.
    executor=dg.in_process_executor,
)

# Exempts what was imported from garbage collection, which saves half a second of a run in which everything
# is up to date.
gc.freeze()
