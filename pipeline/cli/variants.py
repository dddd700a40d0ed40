"""variants: lists the variants of a recipe, or runs them."""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.store.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.recipe.recipe import Recipe

HELP = "List the variants of the recipe, or run a job for each of them."
JOBS = ("pretrain", "retokenize", "corpus")


class VariantsError(PipelineError):
    """A run of a variant failed, or there are none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    runs = actions.add_parser("run", help="run a job for each variant", description="Run a job for variants.")
    runs.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="variants, `base` for the recipe as it is written; default: all",
    )
    runs.add_argument("--job", choices=JOBS, default=JOBS[0], help="default: %(default)s")
    runs.add_argument(
        "--at-once", metavar="N", type=int, default=1, help="how many runs at a time; default: %(default)s"
    )


def run(options: argparse.Namespace) -> None:
    from pipeline.recipe import variants
    from pipeline.recipe.recipe import recipe_path
    from pipeline.steps.recipe_versions import differing
    from pipeline.store import keys

    recipes = variants.load_all(recipe_path())
    if options.action == "run":
        _run(list(recipes), options.names, options.job, options.at_once)
        return
    stages = differing(recipes)
    if not stages:
        raise VariantsError(f"{recipe_path()}: the recipe has no `variants`: docs/variants.md")
    print(f"shared by all: everything before {keys.stage(stages[0].key)}")
    for name, recipe in recipes.items():
        print(f"{name:<20}{_settings(recipe, recipes)}")


def _settings(recipe: "Recipe", recipes: "dict[str, Recipe]") -> str:
    from pipeline.recipe.overrides import leaves
    from pipeline.recipe.recipe import BASE

    given = recipes[BASE].all_variants.get(recipe.variant, {})
    return (
        ", ".join(f"{setting} {value}" for setting, value in leaves(given)) or "the recipe as it is written"
    )


def _run(known: "Sequence[str]", names: "Sequence[str]", job: str, at_once: int) -> None:
    """Runs the job once for each variant. The recipe itself comes first and alone, so that the tokenizer,
    which all share, is made of its text. Raises VariantsError at the end for the runs that failed.
    """
    if unknown := [name for name in names if name not in known]:
        raise VariantsError(f"no variant is named {unknown[0]!r}; choose from {', '.join(known)}")
    if at_once < 1:
        raise VariantsError(f"--at-once {at_once}: must be at least 1")
    wanted = [name for name in known if name in (names or known)]
    failed = []
    with ThreadPoolExecutor(at_once) as pool:
        first = [] if names else [wanted.pop(0)]
        for group in (first, wanted):
            statuses = pool.map(lambda name: _execute(name, job), group)
            failed += [name for name, status in zip(group, statuses, strict=True) if status]
    if failed:
        again = f"python -m pipeline variants run {' '.join(failed)}"
        raise VariantsError(f"failed: {', '.join(failed)}; the output above says why. To resume: {again}")


def _execute(name: str, job: str) -> int:
    """Runs the job for one variant as `dagster job execute` does. Returns its exit status."""
    print(f"{name}: {job}", flush=True)
    tags = json.dumps({"dagster/partition": name})
    dagster = str(Path(sys.executable).with_name("dagster"))
    command = [dagster, "job", "execute", "-m", "pipeline.definitions", "-j", job, "--tags", tags]
    return subprocess.run(command, check=False).returncode
