"""Instruction tuning (SFT) and preference tuning (DPO): each a recipe derived from the one it belongs to."""

from typing import Any, Self

from pydantic import Field, model_validator

from pipeline.recipe.sections import Corpus
from pipeline.store.params import LARGEST_AMOUNT, Params

SFT, DPO = SECTIONS = ("sft", "dpo")
# What makes a section, and what it goes on with.
JOBS = {SFT: "sft", DPO: "align"}
# What a section has of `training` unless it sets it: the model, and how this machine computes it.
INHERITED = {
    "model",
    "seq_len",
    "global_batch_tokens",
    "micro_batch_size",
    "seed",
    "precision",
    "compile",
    "attention",
    "activation_checkpointing",
    "log_every_steps",
    "sinks",
    "threads",
    "parallel",
}
# The peak learning rate, as in TRL, which suits models of some billion parameters; small ones need more.
RATES = {SFT: 2e-5, DPO: 1e-6}
ANSWER_TOKENS = 48
EVALUATIONS = 4  # in a run, and as many checkpoints


class Tuning(Params):
    """What a tuning learns from, and how. `dpo` learns which of two answers is better."""

    corpora: tuple[Corpus, ...] = Field(min_length=1)
    """The corpora to learn from, as in a recipe, with `format: chat` for `sft` and `format: preferences` for
    `dpo`: docs/chat.md.
    """
    epochs: float = Field(1.0, gt=0)
    """Passes over the corpora. They decide `training.max_tokens`, rounded up to whole steps, at least two."""
    validation_fraction: float | None = Field(None, gt=0, lt=0.5)
    """Share (0 to 1) of these corpora's documents that is held out. A few conversations need a larger share
    than much text. When not set, `shards.validation_fraction`.
    """
    answer_tokens: int = Field(ANSWER_TOKENS, ge=1, le=LARGEST_AMOUNT)
    """Tokens after which the evaluation cuts off an answer to a held-out conversation. Raise it if answers
    are longer: an answer that is cut off counts as one that does not end.
    """
    training: dict[str, Any] = Field({})
    """Settings of `training` that differ: `optimizer`, `schedule`, `global_batch_tokens`, `learn`, `lora`.
    The model, its `seq_len` and how a machine computes it are those of the recipe.
    """

    @property
    def held_out(self) -> dict[str, float]:
        """What differs from the recipe's `shards`."""
        return {} if self.validation_fraction is None else {"validation_fraction": self.validation_fraction}

    @model_validator(mode="after")
    def _the_model_stays(self) -> Self:
        for name in ("model", "pretrained", "max_tokens", "stages", "objective"):
            if name in self.training:
                raise ValueError(f"training.{name} follows from the recipe: leave it out")
        return self


class SftParams(Tuning):
    """Instruction tuning: the model learns the answers of conversations."""

    rehearsal: float = Field(0.0, ge=0, lt=1)
    """Share (0 to 1) of the training that is text of the pretraining, so that the model keeps what it
    knows.
    """


class PostTraining(Params):
    """Stages after the pretraining, in their order."""

    sft: SftParams | None = None
    """Instruction tuning, of the pretrained model."""
    dpo: Tuning | None = None
    """Preference tuning (Rafailov et al. 2023), of the model of `sft` or, without it, of the pretrained
    one.
    """

    @property
    def sections(self) -> dict[str, Tuning]:
        """The sections that are set, by name, in their order."""
        return {name: section for name in SECTIONS if (section := getattr(self, name)) is not None}


def training_settings(
    section: str, tuning: Tuning, training: dict[str, Any], tokens: int | None
) -> dict[str, Any]:
    """The section `training` of the derived recipe; `training` is that of the recipe.

    It is as long as `tokens`, up to whole steps, of which there are two at least: the last one of a schedule
    that ends at 0 changes nothing. Before the shards are there, nobody knows the length, and it is that of
    two steps. Where it does not say how often it is evaluated and saved, that is EVALUATIONS times.
    """
    own = {name: value for name, value in training.items() if name in INHERITED} | tuning.training
    step = own["global_batch_tokens"]
    length = max(2, -(-(tokens or 0) // step)) * step
    often = {"every_tokens": max(step, length // EVALUATIONS)}
    own["optimizer"] = {"kind": "adamw", "lr": RATES[section]} | own.get("optimizer", {})
    return {"checkpoint": often, "evaluation": often} | own | {"objective": section, "max_tokens": length}
