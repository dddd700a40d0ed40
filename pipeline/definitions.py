"""The code location: the graph of the recipe in use, its jobs and its resources. Nothing but composition."""

from typing import Any

import dagster as dg

from pipeline.assets.checkpoints import checkpoint_spec
from pipeline.assets.console import console, explain_on_exit
from pipeline.assets.corpora import corpus_assets
from pipeline.assets.dedup import dedup_asset
from pipeline.assets.evaluation import evaluation_asset
from pipeline.assets.exported_model import exported_model_asset
from pipeline.assets.pretrained_model import pretrained_model_asset
from pipeline.assets.resources import Workshop
from pipeline.assets.token_shards import token_shards_asset
from pipeline.assets.tokenizer import tokenizer_asset
from pipeline.recipe import load_recipe, recipe_path

explain_on_exit()
recipe = load_recipe(recipe_path())

data = [asset for corpus in recipe.corpora for asset in corpus_assets(corpus)]
mixture = [dedup_asset(recipe), tokenizer_asset(recipe)]
shards = [token_shards_asset(corpus) for corpus in recipe.corpora]
model = [pretrained_model_asset(recipe), evaluation_asset(), exported_model_asset()]

QUIET: dict[str, Any] = {"loggers": {"console": {"config": {}}}}  # `console` in the terminal instead of Dagster's own format
jobs = [
    dg.define_asset_job("pretrain", [*data, *mixture, *shards, *model], config=QUIET, description="Everything that is out of date, then training."),
    dg.define_asset_job("corpus", [*data, mixture[0]], config=QUIET, description="Every corpus up to dedup."),
    dg.define_asset_job("retokenize", [*data, *mixture, *shards], config=QUIET, description="Corpora to token shards, with the tokenizer as it is."),
    dg.define_asset_job("evaluate", model[1:], config=QUIET, description="Evaluation and export of the newest trained model."),
]

defs = dg.Definitions(
    assets=[*data, *mixture, *shards, checkpoint_spec(recipe), *model],
    jobs=jobs,
    resources={"workshop": Workshop()},
    loggers={"console": console},
    # The stages use every core themselves; a process for each step would only cost its start.
    executor=dg.in_process_executor,
)
