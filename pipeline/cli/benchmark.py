"""benchmark: lets a model answer benchmarks."""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from pipeline.cli.opening import UsageError, add_model, chosen_model, evaluation_of, opened, whole_store
from pipeline.recipe.evaluation import EvaluationParams
from pipeline.reports import tables
from pipeline.sources.benchmarks.items import SETS, known_names
from pipeline.sources.benchmarks.source import NamedBenchmark
from pipeline.steps.model import benchmark, evaluate, harness
from pipeline.steps.model.export import export
from pipeline.steps.training import plan
from trainer.config.problems import requirement
from trainer.system import terminal
from trainer.system.wording import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--on",
        metavar="A,B",
        default="easy",
        help="easy, core, names that --list shows, and files of your own, mine.jsonl; or `recipe`, the "
        "benchmarks and evaluation texts of the recipe; default: %(default)s",
    )
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        default="auto",
        help="precision of matrix products; default: bf16 if the hardware supports it, else fp32",
    )
    parser.add_argument(
        "--import",
        dest="results",
        metavar="FILE",
        type=Path,
        help="instead: take the scores of the model from a results_*.json of lm-evaluation-harness, with the "
        "samples_*.jsonl beside it, and write them into the evaluation and the export",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--list", action="store_true", help="print the names of all benchmarks")


def run(options: argparse.Namespace) -> None:
    if options.list:
        for name, members in SETS.items():
            print(f"{name}: {', '.join(members)}")
        print("\n".join(known_names()))
        return
    found = _imported(options) if options.results else _answered(options)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print("\n".join([*tables.lines(benchmark.table(found)), "", benchmark.EXPLAINED]))
    print(f"*: the accuracy that is compared with chance. {benchmark.verdict(found)[1]}")


def _answered(options: argparse.Namespace) -> Mapping[str, benchmark.Scores]:
    if options.on == "recipe":
        recipe, store = opened(options.variant)
        asked = benchmark.of_recipe(store, recipe.evaluation)
        if not asked:
            raise UsageError("--on recipe: the recipe has no `evaluation` with benchmarks or texts")
    else:
        asked = benchmark.named(wanted(options.on))
    model = chosen_model(options).path
    with terminal.doing(f"the model answers {counted(len(asked), 'benchmarks')}"):
        return benchmark.answered(model, asked, options.precision)


def _imported(options: argparse.Namespace) -> Mapping[str, benchmark.Scores]:
    """Keeps the scores in a file as those of the model, in its evaluation, export and card."""
    results, model, store = harness.Results.read(options.results), chosen_model(options), whole_store()
    if model.run is None:
        raise UsageError(f"--import: {model.path} belongs to no run of this store: give one that does")
    results.check_model(model.path, bool(options.model))
    checkpoint = plan.final_checkpoint(model.trained) if model.trained else model.run.name
    with terminal.doing("importing the scores"), store.in_progress():
        harness.publish(store, checkpoint, results)
        if evaluated := evaluation_of(store, model):
            evaluate.with_imported(store, checkpoint, evaluated)
        if model.trained:
            store.go_on_with(model.trained)
            print(f"card: {export(store).path / 'README.md'}", file=sys.stderr)
    if results.left_out:
        print(f"no shares of right answers, left out: {', '.join(results.left_out)}", file=sys.stderr)
    return results.scores


def wanted(text: str) -> tuple[NamedBenchmark, ...]:
    """The benchmarks of a list with commas. Raises UsageError."""
    entries = [
        {"name": _name(Path(one)), "path": str(Path(one).absolute())} if one.endswith(".jsonl") else one
        for one in text.split(",")
    ]
    try:
        found = EvaluationParams.model_validate({"benchmarks": entries}).benchmarks
    except ValidationError as error:
        said = requirement(error.errors()[0])
        raise UsageError(f"--on {text}: {said}; a file of questions ends in .jsonl") from None
    for one in found:
        one.check()
    return found


def _name(file: Path) -> str:
    name = re.sub(r"[^a-z0-9_]", "_", file.stem.lower())
    return name if name[0].isalpha() else f"own_{name}"
