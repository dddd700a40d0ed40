"""summary: shows the newest model."""

import argparse
import os
import shlex
from pathlib import Path

from pipeline.cli.opening import add_variant, opened
from pipeline.recipe.recipe import RECIPE_VARIABLE, recipe_path
from pipeline.reports import tables
from pipeline.steps.model import benchmark, evaluate
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.keys import RUNS
from pipeline.store.store import Store
from trainer.system.history import STORE_VARIABLE

CHECKOUT = Path(__file__).parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    recipe, store = opened(options.variant)
    print(summary(store, recipe.launch.usd_per_hour))


def summary(store: Store, usd_per_hour: float | None = None) -> str:
    """The path of the model, what training it took, its bits per byte compared with xz, samples, and how to
    open the UI. `usd_per_hour`: the price of the machine, if it is known.
    """
    exported = store.current(keys.EXPORTED_MODEL)
    evaluation = evaluate.read(store.current(keys.EVALUATION))
    bits, held_out = evaluation["bits_per_byte"], evaluation["held_out_bytes"]
    xz = evaluation["compressors"]["xz -9"]
    lines = [
        f"Model        {exported.directory()}",
        f"Training     {Effort.of(store.current(keys.PRETRAINED_MODEL), usd_per_hour)}",
        f"Validation   {bits:.3f} bits per byte on {held_out:,} held-out bytes; xz -9 needs {xz:.3f}",
    ]
    if answered := evaluation.get("benchmarks"):
        lines += [
            f"Benchmarks   {benchmark.verdict(answered)[1]}",
            "",
            *tables.lines(benchmark.table(answered)),
        ]
    for sample in evaluation["samples"][:2]:
        lines += [
            "",
            f"Sample for {sample['prompt']!r}:",
            *(f"    {line}" for line in sample["text"].splitlines()),
        ]
    lines += [
        "",
        "The graph, every stage and every checkpoint, at http://127.0.0.1:3000:",
        f"    {ui_command()}",
        "The curves of all trainings, also while they run, at http://127.0.0.1:6006:",
        f"    tensorboard --logdir {shlex.quote(str(store.root / RUNS))}",
    ]
    return "\n".join(lines)


def ui_command() -> str:
    """The command that shows the recipe and the store in use here, with the variables that name them."""
    home = Path(os.environ.get("DAGSTER_HOME") or CHECKOUT / "dagster_home")
    variables = {
        RECIPE_VARIABLE: recipe_path().absolute() if RECIPE_VARIABLE in os.environ else None,
        STORE_VARIABLE: os.environ.get(STORE_VARIABLE),
        "DAGSTER_HOME": home if home != CHECKOUT / "dagster_home" else None,
    }
    named = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items() if value]
    make = ["make"] if Path.cwd() == CHECKOUT else ["make", "-C", shlex.quote(str(CHECKOUT))]
    return " ".join([*named, *make, "ui"])
