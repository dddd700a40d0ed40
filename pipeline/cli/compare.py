"""compare: shows variants of a recipe, or runs, side by side."""

import argparse
import json
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path

from pipeline.cli.opening import UsageError, add_section, differing_in
from pipeline.reports import branches, comparison, runs_table, variant_arms, verdict
from pipeline.steps.recipe_versions import store_of
from pipeline.store.training_runs import run_histories
from pipeline.store.variant_names import BASE, families
from trainer.system import terminal
from trainer.system.durable import write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="variants, `base` for the recipe itself; or runs: directories or names in the UI (6ddca120), "
        "of a checkpoint (6ddca120-00000020) the run up to its step; default: all variants",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="also draw the curves over tokens and over time"
    )
    add_section(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, with the curves, and draw nothing")


def run(options: argparse.Namespace) -> None:
    if options.plot and options.plot.suffix != ".png":
        raise UsageError(f"--plot {options.plot}: the curves are a PNG picture, name a .png file")
    recipes, explained = differing_in(options.section, options.names), runs_table.EXPLAINED
    with terminal.doing("reading the curves and scores of the runs"):
        known = families(recipes)
        if of_recipe := known.keys() >= {*options.names}:
            wanted = options.names or recipes
            compared_on, arms = variant_arms.evidence(recipes)
            ranks = verdict.ranks(compared_on, arms.values())
            shown = [outcome for outcome in comparison.outcomes(recipes, ranks) if outcome.name in wanted]
        elif recipes.keys() & {*options.names}:
            other = next(name for name in options.names if name not in known)
            raise UsageError(
                f"{other}: variants are compared with variants, all seeds of each: {', '.join(known)}; "
                "runs with runs, by their names"
            )
        else:
            shown = comparison.of_runs(store_of(recipes[BASE]), options.names)
    if not of_recipe:
        explained += " Of runs given by name, loss and bits per byte are always those of the last validation."
    if options.json:
        print(json.dumps([asdict(one) for one in shown], indent=1))
        return
    columns = shutil.get_terminal_size().columns
    print("\n".join(runs_table.lines(shown, columns)))
    print(textwrap.fill(explained, columns))
    named = {run.run for one in shown for run in (one, *one.seeds)}
    runs = [run for run in run_histories(store_of(recipes[BASE])) if run.name in named]
    if shared := branches.lines(runs):
        print("", *shared, sep="\n")
    if options.plot:
        with terminal.doing("drawing the curves"):
            write_atomically(options.plot, runs_table.draw(shown))
        print(f"\nCurves: {options.plot}")
