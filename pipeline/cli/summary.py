"""summary: shows a model, by default that of the recipe."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.cli.opening import Model, add_model, chosen_model, evaluation_of, opened, whole_store
from pipeline.recipe.loading import RECIPE_VARIABLE, recipe_path
from pipeline.reports import tables
from pipeline.steps.model import benchmark, evaluate, tuned_model_text
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.store import Store
from trainer.system import terminal
from trainer.system.paths import STORE_VARIABLE, store_place
from trainer.system.wording import shell_word

CHECKOUT = Path(__file__).parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)


def run(options: argparse.Namespace) -> None:
    model = chosen_model(options, sys.stdout)
    price = None if options.model else opened(options.variant)[0].launch.usd_per_hour
    with terminal.doing("reading its scores and curves"):
        shown = summary(whole_store(), model, price)
    print(shown)


def summary(store: Store, model: Model, usd_per_hour: float | None) -> str:
    """The path of the model, what training it took, its bits per byte compared with xz and a bigram model,
    samples, and the commands that come next, as far as they are known. `usd_per_hour` is for the machine.
    """
    evaluation = _scores(store, model)
    effort = Effort.of(model.trained, usd_per_hour) if model.trained else None
    took = f"{effort}, with start-up, validation and checkpoints"
    if effort is None:
        took = "unknown"
        if model.run and model.run.steps:
            took = f"{Effort(model.run.tokens[-1], model.run.seconds[-1], None)}, in steps alone"
    bits = evaluation.get("bits_per_byte")
    validation = "unknown" if bits is None else f"{bits:.3f} bits per byte"
    if compressors := evaluation.get("compressors"):
        held_out, xz = evaluation["held_out_bytes"], compressors["xz -9"]
        validation += f" on {held_out:,} held-out bytes; xz -9 needs {xz:.3f}"
        if bigram := compressors.get(evaluate.BIGRAM):
            validation += f", and a bigram model {bigram:.3f}"
    elif "step" in evaluation:
        validation += f" at step {evaluation['step']:,}, during training"
    lines = [f"Model        {model.path}", f"Training     {took}", f"Validation   {validation}"]
    if answered := evaluation.get("benchmarks"):
        lines += [
            f"Benchmarks   {benchmark.verdict(answered)[1]}",
            "",
            *tables.lines(benchmark.table(answered)),
        ]
    if tuning := evaluation.get("tuning"):
        lines += _tuned(tuning, model)
    for sample in evaluation.get("samples", [])[:2]:
        lines += [
            "",
            f"Sample for {sample['prompt']!r}:",
            *(f"    {line}" for line in sample["text"].splitlines()),
        ]
    if not tuning:
        asks = f"python -m trainer generate --model {shell_word(model.path)} --prompt 'It was'"
        lines += ["", "Let the model continue a text:", f"    {asks}"]
    lines += [
        "",
        "The graph, every stage and every checkpoint, at http://127.0.0.1:3000:",
        f"    {ui_command()}",
        "The curves of all trainings, also while they run, at http://127.0.0.1:6006:",
        f"    tensorboard --logdir {shell_word(store.root / keys.RUNS)}",
    ]
    return "\n".join(lines)


def _tuned(tuning: Mapping[str, Any], model: Model) -> Iterator[str]:
    """What tuning changed, two conversations, and how to talk to the model."""
    losses, kinds = tuned_model_text.losses(tuning), tuned_model_text.kinds(tuning)
    yield from ("", *tables.lines(losses), "", *tables.lines(kinds))
    yield from (*tuned_model_text.unended(tuning), "")
    for conversation in tuning["conversations"][:2]:
        yield f"Q: {conversation['messages'][-1]['content']}"
        yield f"A: {conversation['after']}"
    yield from ("", "Talk to it:", f"    python -m trainer chat {shell_word(model.path)}")


def _scores(store: Store, model: Model) -> dict[str, Any]:
    """The evaluation of an export or a checkpoint, else the last validation before it."""
    if evaluated := evaluation_of(store, model):
        return evaluate.read(evaluated)
    return ((model.run and model.run.validations) or [{}])[-1]


def ui_command() -> str:
    """The command that shows the recipe and the store in use here, with the variables that name them."""
    home = Path(os.environ.get("DAGSTER_HOME") or CHECKOUT / "dagster_home")
    variables = {
        RECIPE_VARIABLE: recipe_path().absolute() if RECIPE_VARIABLE in os.environ else None,
        STORE_VARIABLE: store_place() if os.environ.get(STORE_VARIABLE) else None,
        "DAGSTER_HOME": home if home != CHECKOUT / "dagster_home" else None,
    }
    named = [f"{name}={shell_word(value)}" for name, value in variables.items() if value]
    make = ["make"] if Path.cwd() == CHECKOUT else ["make", "-C", shell_word(CHECKOUT)]
    return " ".join([*named, *make, "ui"])
