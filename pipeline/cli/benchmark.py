"""benchmark: lets a model answer benchmarks."""

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.plain_files import UsageError
from pipeline.cli.variant_option import add_variant, recipe_of

if TYPE_CHECKING:
    from pipeline.sources.benchmarks.source import NamedBenchmark

HELP = "Let a model answer benchmarks: accuracies with intervals, beside chance, and bits per byte."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="directory of an exported model, of a checkpoint or of a run, or a name in the UI; default: the "
        "recipe's model",
    )
    parser.add_argument(
        "--on",
        metavar="A,B",
        default="easy",
        help="easy, core, names that --list shows, and files of your own, mine.jsonl; default: %(default)s",
    )
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        default="auto",
        help="of matrix products; default: bf16 where the hardware multiplies it, else fp32",
    )
    add_variant(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--list", action="store_true", help="print the names of all benchmarks")


def run(options: argparse.Namespace) -> None:
    from pipeline.sources.benchmarks import package

    if options.list:
        print(
            "\n".join([*(f"{name}: {', '.join(of)}" for name, of in package.SETS.items()), *package.names()])
        )
        return
    from pipeline.steps.model import benchmark
    from pipeline.steps.recipe_versions import store_of
    from pipeline.store import keys

    wanted = _wanted(options.on)
    exported = options.model or store_of(recipe_of(options)).current(keys.EXPORTED_MODEL).directory()
    model = str(exported)
    found = benchmark.answered(model, wanted, options.precision)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print("\n".join([*benchmark.lines(found), "", benchmark.EXPLAINED]))
    print(f"*: the accuracy that is compared with chance. {benchmark.verdict(found)[1]}")


def _wanted(text: str) -> "tuple[NamedBenchmark, ...]":
    """The benchmarks of a list with commas. Raises UsageError."""
    from pydantic import ValidationError

    from pipeline.recipe.evaluation import EvaluationParams

    entries = [
        {"name": _name(Path(one)), "path": str(Path(one).absolute())} if one.endswith(".jsonl") else one
        for one in text.split(",")
    ]
    try:
        wanted = EvaluationParams.model_validate({"benchmarks": entries}).benchmarks
    except ValidationError as error:
        raise UsageError(f"--on {text}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    for one in wanted:
        one.check()
    return wanted


def _name(file: Path) -> str:
    name = re.sub(r"[^a-z0-9_]", "_", file.stem.lower())
    return name if name[0].isalpha() else f"own_{name}"
