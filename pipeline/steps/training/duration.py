"""The number of tokens of a recipe whose `duration` is given in minutes: measured once, then recorded."""

import json
import tempfile
from pathlib import Path

import yaml

from pipeline.recipe.duration import DurationParams
from pipeline.recipe.recipe import Recipe
from pipeline.steps.training.commands import run_trainer
from pipeline.store.fingerprint import fingerprint
from pipeline.store.store import Store
from trainer.config import OPERATIONAL, RunConfig, TrainingConfig

SHRINKING = (
    ("checkpoint", "every_tokens"),
    ("checkpoint", "keep_every_tokens"),
    ("evaluation", "every_tokens"),
    ("schedule", "warmup_tokens"),
)
PIECES = 24  # of the longest training, so that two measurements of one machine mostly agree


def resolved(store: Store, recipe: Recipe) -> Recipe:
    """The recipe with the number of tokens that was recorded for it, if it has a `duration`; before the first
    training, with the largest.
    """
    if recipe.duration is None:
        return recipe
    return with_tokens(recipe, recipe.duration, recorded(store, recipe) or recipe.duration.max_tokens)


def recorded(store: Store, recipe: Recipe) -> int | None:
    """The number of tokens that an earlier run recorded, if it did and the record can be read."""
    tokens = store.fact(fact(recipe)) or ""
    return int(tokens) if tokens.isdecimal() else None


def fact(recipe: Recipe) -> str:
    """The name under which the store has the number of tokens, for these settings of training."""
    training = recipe.training.model_dump(mode="json", exclude=OPERATIONAL)
    return f"tokens-{fingerprint([recipe.duration, training])[:8]}"


def tokens_in(duration: DurationParams, tokens_per_second: float, batch: int) -> int:
    """How many tokens, in whole batches, a training of this duration takes at this speed."""
    piece = max(1, duration.max_tokens // PIECES)
    affordable = int(tokens_per_second * 60 * duration.minutes) // piece * piece
    wanted = min(max(affordable, duration.min_tokens), duration.max_tokens)
    return max(1, wanted // batch) * batch


def speed(config: RunConfig) -> float:
    """Tokens per second of the steps of a training on this machine, measured in a process of its own. Raises
    TrainerCommandError.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.yaml"
        settings = config.model_copy(update={"run_dir": path.with_name("run")}).model_dump(mode="json")
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        measured = json.loads(run_trainer("speed", str(path), threads=config.training.threads))
    return float(measured["tokens_per_second"])


def with_tokens(recipe: Recipe, duration: DurationParams, tokens: int) -> Recipe:
    """The recipe with a fixed length. It saves and evaluates as often as the longest training."""
    settings = recipe.training.model_dump(mode="json") | {"max_tokens": tokens}
    for section, length in SHRINKING:
        if longest := settings[section].get(length):
            settings[section] = settings[section] | {length: max(1, longest * tokens // duration.max_tokens)}
    changes = {"training": TrainingConfig.model_validate(settings), "duration": None}
    return recipe.model_copy(update=changes)
