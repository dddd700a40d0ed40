"""compare: shows the variants of a recipe side by side."""

import argparse
import json
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path

from pipeline.cli.plain_files import UsageError

HELP = "Compare the variants of the recipe: settings, loss, bits per byte, benchmarks, cost, and curves."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="variants, or `base` for the recipe itself; default: all"
    )
    parser.add_argument(
        "--plot", type=Path, default=Path("variants.png"), metavar="FILE.png", help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with the curves, and draw nothing")


def run(options: argparse.Namespace) -> None:
    from pipeline.recipe import variants
    from pipeline.recipe.recipe import recipe_path
    from pipeline.reports import variants as report
    from pipeline.steps.training import comparison
    from trainer.system.durable import write_atomically

    if options.plot.suffix != ".png":
        raise UsageError(f"--plot {options.plot}: the curves are a PNG picture, name a .png file")
    recipes = variants.load_all(recipe_path())
    if unknown := [name for name in options.names if name not in recipes]:
        raise UsageError(f"no variant is named {unknown[0]!r}; choose from {', '.join(recipes)}")
    found = comparison.outcomes(recipes)
    shown = [one for one in found if one.variant in (options.names or recipes)]
    if options.json:
        print(json.dumps([asdict(one) for one in shown], indent=1))
        return
    columns = shutil.get_terminal_size().columns
    print("\n".join(report.lines(shown, columns)))
    print(textwrap.fill(report.EXPLAINED, columns))
    write_atomically(options.plot, report.draw(shown))
    print(f"\nCurves: {options.plot}")
