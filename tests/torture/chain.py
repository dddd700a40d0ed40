"""Makes the data of a recipe without Dagster, and prints where each version lies. A mistake of the user's is
one line, with exit status 2.
"""

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path

from pipeline.recipe.loading import load_recipe
from pipeline.steps.recipe_versions import RecipeVersions
from pipeline.steps.stages import is_asset, of_data
from pipeline.steps.tokens.tokenizer import FrozenTokenizer
from pipeline.store.bucket.files import cache_of
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from tests.ray_cluster import engine_on


def chain(options: argparse.Namespace) -> dict[str, str]:
    """Makes what is not up to date; the directory of each version."""
    overrides = json.loads(options.overrides)
    recipe, written = load_recipe(options.recipe, overrides), load_recipe(options.recipe)
    root = cache_of(options.store, Path("cache")) if "://" in options.store else Path(options.store)
    store = Store(root, RecipeVersions(recipe, written))
    engine = engine_on(options.ray) if options.ray else LocalEngine(1)
    with store.in_progress(), closing(engine):
        found = of_data(recipe)
        for key, stage in found.items():
            if isinstance(stage, FrozenTokenizer):
                stage.make(store, engine, options.retrain)
            elif is_asset(key):
                stage.make(store, engine)
        return {key: str(store.current(key).path) for key in found}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.chain", description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("store", help="a directory, or the address of a bucket")
    parser.add_argument("overrides", help="JSON")
    parser.add_argument("--retrain", action="store_true", help="make a frozen tokenizer again")
    parser.add_argument("--ray", metavar="HOST:PORT", help="work on this cluster")
    try:
        print(json.dumps(chain(parser.parse_args())))
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
