"""variants: lists the variants of a recipe, or runs them."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pipeline.cli.opening import UsageError, check_known, check_least
from pipeline.recipe import variants
from pipeline.recipe.loading import recipe_path
from pipeline.recipe.overrides import leaves
from pipeline.recipe.post_training import JOBS
from pipeline.recipe.recipe import Recipe
from pipeline.steps.recipe_versions import differing
from pipeline.store.errors import PipelineError
from pipeline.store.variant_names import BASE, families, family
from trainer.system.signals import stop_with_parent

OF_THE_RECIPE = ("pretrain", "retokenize", "corpus")
SECTIONS = {job: section for section, job in JOBS.items()}


class VariantsError(PipelineError):
    """A run of a variant failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    runs = actions.add_parser("run", help="run a job for each variant", description="Run a job for variants.")
    runs.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="variants with all of their seeds, `base` for the recipe as it is written; or single seeds, "
        "`base.2`; default: all that differ in what the job makes",
    )
    runs.add_argument(
        "--job",
        choices=(*OF_THE_RECIPE, *SECTIONS),
        default=OF_THE_RECIPE[0],
        help="`sft` and `align` make the sections of `post_training`; default: %(default)s",
    )
    runs.add_argument(
        "--at-once", metavar="N", type=int, default=1, help="how many runs at a time; default: %(default)s"
    )


def run(options: argparse.Namespace) -> None:
    recipes = variants.load_all(recipe_path())
    if options.action == "run":
        check_known("variants", options.names, recipes)
        check_least("--at-once", options.at_once)
        section = SECTIONS.get(options.job, "")
        if section not in ("", *recipes[BASE].post_training.sections):
            raise UsageError(f"--job {options.job}: the recipe has no post_training.{section}: docs/chat.md")
        chosen = [name for name in recipes if {name, family(name)} & {*options.names}]
        run_jobs(chosen or list(variants.distinct(recipes, section)), options.job, options.at_once)
        return
    if len(recipes) == 1:
        raise UsageError(f"{recipe_path()}: the recipe has no `variants`: docs/variants.md")
    print(f"shared by all: {_shared(recipes)}")
    named = {
        name: name if len(seeds) == 1 else f"{name} ({len(seeds)} seeds)"
        for name, seeds in families(recipes).items()
    }
    width = max(map(len, named.values()))
    for name, shown in named.items():
        given = recipes[BASE].all_variants.get(name, {})
        settings = ", ".join(f"{setting} {value}" for setting, value in leaves(given))
        print(f"{shown:<{width}}  {settings or 'the recipe as it is written'}")


def _shared(recipes: Mapping[str, Recipe]) -> str:
    """What is the same for all variants, of the recipe and of each section of its `post_training`."""
    found = []
    for section in ("", *recipes[BASE].post_training.sections):
        if stages := differing(variants.in_section(recipes, section)):
            above = f"{section}/" if section else ""
            found.append(f"everything before {above}{stages[0].name}")
        else:
            found.append(f"all of {section or 'the pretraining'}")
    return ", ".join(found)


def run_jobs(names: Sequence[str], job: str, at_once: int = 1) -> None:
    """Runs the job once for each variant. The recipe itself runs first and alone, so that the tokenizer,
    which all variants share, is made of its text. When this process is told to stop, it lets the jobs under
    way save and end. Raises VariantsError at the end for the runs that failed.
    """
    failed: list[str] = []
    running: list[subprocess.Popen[bytes]] = []
    # Several bars in one terminal would be in each other's way.
    environment = {**os.environ, **({"TERM": "dumb"} if at_once > 1 else {})}

    def execute(name: str) -> int:
        print(f"{name}: {job}", flush=True)
        tags = json.dumps({"dagster/partition": name})
        dagster = [sys.executable, "-m", "pipeline.dagster_command"]
        command = [*dagster, "job", "execute", "-m", "pipeline.definitions", "-j", job, "--tags", tags]
        process = subprocess.Popen(
            command, env=environment, preexec_fn=partial(stop_with_parent, signal.SIGINT)
        )
        running.append(process)
        return process.wait()

    with ThreadPoolExecutor(at_once) as pool:
        try:
            for group in (names[:1], names[1:]):
                statuses = pool.map(execute, group)
                failed += [name for name, status in zip(group, statuses, strict=True) if status]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.send_signal(signal.SIGINT)  # which does nothing to one that has ended
            raise
    if failed:
        again = f"python -m pipeline variants run {' '.join(failed)} --job {job}"
        raise VariantsError(f"failed: {', '.join(failed)}; the output above says why. To resume: {again}")
