"""Shows how far a training has come: on a page beside that of its model, and in the terminal."""

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg

from pipeline.assets import checkpoints
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.recipe.recipe import Recipe
from pipeline.reports.images import sparkline
from pipeline.steps.stages import final_assets
from pipeline.steps.training import plan
from pipeline.store import keys
from pipeline.store.keys import Key
from trainer.config import TrainingConfig
from trainer.system import terminal
from trainer.system.run_history import RunHistory, step_name

KEY = Key("training_progress")
SHOWN_BY_THE_BAR = ("metrics", "doing")  # messages of the trainer
OF_A_STEP = ("evaluation", "checkpoint")  # messages that may come of a later step than the last metrics
LEAST_SECONDS, SHARE = 15.0, 30  # between two entries; of the time so far, where that is more


def rows_command(run: plan.PlannedRun, step: int, used: UsedRecipe) -> str:
    """The command that lists the documents of a step."""
    return used.meant(f"`python -m pipeline lineage {step_name(run.name, step)} --step {step} --losses`")


def progress_spec(recipe: Recipe, used: UsedRecipe) -> dg.AssetSpec:
    """The asset `training_progress`: training adds entries, nothing materializes it. It is apart from the
    model because each entry is green, and the graph shows an asset that has a new one as made.
    """
    return dg.AssetSpec(
        used.asset(KEY, recipe.section),
        deps=[used.asset(key, recipe.section) for key in (keys.TOKENIZER, *final_assets(recipe))],
        group_name=used.name(recipe.section or "model"),
        kinds={"pytorch"},
        description="Progress of training: time left, loss, speed, a sample. Each entry is of one step. The "
        "training is done when `pretrained_model` has an entry of its own.",
    )


class Progress:
    """Adds entries while a run trains, of a few kB: about 100 in the first hour, 250 in a week."""

    def __init__(self, context: dg.AssetExecutionContext, run: plan.PlannedRun, used: UsedRecipe):
        self._context, self._run, self._used = context, run, used
        self._begun = self._due = time.monotonic()
        self._validation: Mapping[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._sample: Mapping[str, Any] | None = None
        self._spike = ""

    def end(self, status: str = f"done: {keys.PRETRAINED_MODEL} shows the model") -> None:
        """Adds the last entry of a training that has begun."""
        if self._last:
            self._show(status)

    def take(self, message: Mapping[str, Any]) -> None:
        """Takes a message of the trainer, and shows what it knows if that is due."""
        match message["kind"]:
            case "metrics":
                self._last = dict(message)
                if message["spike"]:
                    self._spike = (
                        f"step {message['step']}: {rows_command(self._run, message['step'], self._used)}"
                    )
            case "evaluation":
                self._validation = message
            case "sample":
                self._sample = message
        if self._last and message["kind"] in OF_A_STEP:
            self._last |= {"step": message["step"], "tokens": message["tokens"]}
        now = time.monotonic()
        if self._last and now >= self._due:
            self._due = now + max(LEAST_SECONDS, (now - self._begun) / SHARE)
            share = self._last["tokens"] / self._run.config.training.max_tokens
            self._show(f"training, {share:.0%} done, {self._last['eta_seconds'] / 60:.1f} min left")

    def _show(self, status: str) -> None:
        step, validation = self._last["step"], self._validation
        # the first are on disk later than their message, and others may be there already
        losses = RunHistory(self._run.config.run_dir, step).losses
        scores: dict[str, Any] = {"loss": losses[-1] if losses else self._last["loss"]}
        if validation and validation["step"] == step:
            scores |= {"validation_loss": validation["loss"]}
            scores |= {name: validation.get(name) for name in ("perplexity", "bits_per_byte")}
        metadata = {
            "status": status,
            **({"loss so far": dg.MetadataValue.md(sparkline(losses))} if losses else {}),
            **checkpoints.scores(scores),
            **({"last validation": _validated(validation)} if validation else {}),
            "tokens/s": round(self._last["tokens_per_second"]),
            "step": step,
            "tokens": self._last["tokens"],
            **({"sample": checkpoints.samples_shown([self._sample])} if self._sample else {}),
            **({"last spike": self._spike} if self._spike else {}),
            "training run": self._run.config.name,
        }
        context = self._context
        context.log_event(
            dg.AssetMaterialization(
                dg.AssetKey([*context.asset_key.path[:-1], KEY]),
                partition=context.partition_key if context.has_partition_key else None,
                metadata=metadata,
            )
        )


def _validated(message: Mapping[str, Any]) -> str:
    if message["loss"] is None:
        return f"none at step {message['step']:,}"
    return f"{message['loss']:.4f} at step {message['step']:,}"


class Bar(terminal.Activity):
    """The line at the bottom of the terminal, from the messages of the trainer."""

    def __init__(self, training: TrainingConfig):
        super().__init__("starting the trainer")
        self._training = training
        self._validation: list[str] = []

    def show(self, message: Mapping[str, Any]) -> None:
        match message["kind"]:
            case "doing" if terminal.is_interactive():  # elsewhere the log has it
                self.is_now(message["what"])
            case "evaluation":
                self._validation = [f"validation {message['loss']:.3f}"]
            case "metrics":
                training = self._training
                facts = [f"loss {message['loss']:.3f}", f"step {message['step']:,} of {training.steps:,}"]
                facts += [f"{message['tokens_per_second']:,.0f} tokens/s", *self._validation]
                self.is_now("training")
                self.update(message["tokens"] / training.max_tokens, facts, message["eta_seconds"])
