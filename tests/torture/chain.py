"""`python -m tests.torture.chain RECIPE STORE OVERRIDES [--retrain]` makes the data of a recipe without
Dagster, and prints where each version lies. A mistake of the user's is one line, with exit status 2.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pipeline.recipe.recipe import load_recipe
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.stages import DATA_STAGES, is_asset, made
from pipeline.steps.tokens.tokenizer import tokenizer
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store


def chain(path: Path, root: Path, overrides: dict[str, Any], retrain: bool) -> dict[str, str]:
    """Makes what is not up to date; the directory of each version."""
    recipe = load_recipe(path, overrides)
    store, engine = Store(root, RecipeVersions(recipe, load_recipe(path))), LocalEngine(1)
    with store.in_progress():
        for stage in DATA_STAGES:
            for key in filter(is_asset, stage.keys(recipe)):
                names = stage.names(key) or ()
                if stage.page is not None:
                    stage.page.make(store, engine, *names, *stage.settings(recipe, *names))
                elif key == keys.TOKENIZER:
                    fraction = recipe.shards.validation_fraction
                    tokenizer(store, recipe.name, recipe.corpus_names, recipe.tokenizer, fraction, retrain)
        return {key: str(store.current(key).path) for key in made(recipe)}


def main(recipe: str, store: str, overrides: str, *options: str) -> int:
    try:
        print(json.dumps(chain(Path(recipe), Path(store), json.loads(overrides), "--retrain" in options)))
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
