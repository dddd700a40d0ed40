"""merge: makes the mean of checkpoints, evaluates and exports it."""

import argparse

from pipeline.cli.opening import UsageError, add_variant, opened
from pipeline.steps.model import evaluate, export
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.training import merging, plan
from pipeline.store.training_runs import checkpoint_name, checkpoint_path
from trainer.config import numbers, run_config_of
from trainer.system import terminal
from trainer.system.run_history import MODEL_NAMES, bits_shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "checkpoints",
        metavar="CHECKPOINT",
        nargs="+",
        help=f"two or more checkpoints, or one run: {MODEL_NAMES}",
    )
    add("--last", metavar="N", type=int, help="of one run, its newest N checkpoints on disk")
    add("--weights", metavar="W,W", help="a weight for each checkpoint; default: equal ones")
    add_variant(parser)


def run(options: argparse.Namespace) -> None:
    weights = numbers(options.weights) if options.weights else None
    recipe, _ = opened(options.variant)
    store = store_of(recipe, records=False)  # what the recipe uses stays
    if options.last is None:
        saved = [checkpoint_path(store, name) for name in options.checkpoints]
    elif len(options.checkpoints) == 1:
        saved = merging.last(store, options.checkpoints[0], options.last)
    else:
        raise UsageError("--last is of one run: name that run alone")
    for path in saved:
        objective = run_config_of(path).training.objective
        if objective != recipe.training.objective:
            wanted = "without --variant" if objective == "pretrain" else f"with --variant {objective}"
            raise UsageError(f"{checkpoint_name(path)} was trained by {objective}: merge it {wanted}")
    with terminal.doing(f"merging {len(saved)} checkpoints"):
        model = merging.of_checkpoints(store, saved, weights)
    mean = plan.result(store, model)
    with terminal.doing("evaluating the mean"):
        scores = evaluate.read(evaluate.evaluate(store, recipe))
    exported = export.export(store)
    print(f"{checkpoint_name(mean['checkpoint'])}: the mean of {', '.join(map(checkpoint_name, saved))}")
    print(f"{bits_shown(scores['bits_per_byte'])}, loss {scores['loss']:.4f} on held-out text")
    print(f"checkpoint: {mean['checkpoint']}\nexport: {exported.path}")
