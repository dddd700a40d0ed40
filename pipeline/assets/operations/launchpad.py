"""The settings of a recipe that are changed most, as the Launchpad shows them. Sections and names are the
recipe's own.
"""

from typing import Any

import dagster as dg
from pydantic import Field


class CheckpointKnobs(dg.Config):
    every_tokens: int | None = Field(
        default=None, description="Tokens between checkpoints. One more is saved at the end."
    )
    keep_last: int | None = Field(
        default=None, description="How many of the newest checkpoints stay on disk."
    )


class EvaluationKnobs(dg.Config):
    every_tokens: int | None = Field(
        default=None, description="Tokens between validations on all held-out text."
    )


class OptimizerKnobs(dg.Config):
    lr: float | None = Field(default=None, description="Peak learning rate of AdamW.")
    muon_lr: float | None = Field(
        default=None, description="Peak learning rate of Muon, for the matrices inside the blocks."
    )
    weight_decay: float | None = Field(default=None, description="Decoupled weight decay.")


class ModelKnobs(dg.Config):
    n_layers: int | None = Field(default=None, description="Blocks.")
    d_model: int | None = Field(default=None, description="Width: a multiple of n_heads.")
    n_heads: int | None = Field(default=None, description="Attention heads.")
    n_kv_heads: int | None = Field(default=None, description="Key and value heads: divides n_heads.")
    d_ff: int | None = Field(default=None, description="Width inside the feed-forward layers.")


class TrainingKnobs(dg.Config):
    max_tokens: int | None = Field(
        default=None, description="Tokens to train on: a multiple of global_batch_tokens."
    )
    seq_len: int | None = Field(default=None, description="Tokens in a window.")
    global_batch_tokens: int | None = Field(
        default=None, description="Tokens in a step: a multiple of seq_len x micro_batch_size."
    )
    micro_batch_size: int | None = Field(
        default=None, description="Windows that one process computes at a time: less needs less memory."
    )
    seed: int | None = Field(default=None, description="Of the first weights and of the order of the data.")
    model: ModelKnobs = ModelKnobs()
    optimizer: OptimizerKnobs = OptimizerKnobs()
    checkpoint: CheckpointKnobs = CheckpointKnobs()
    evaluation: EvaluationKnobs = EvaluationKnobs()


class DedupKnobs(dg.Config):
    threshold: float | None = Field(
        default=None,
        description="Jaccard similarity from which two documents are duplicates, above 0 and up to 1.",
    )


class ShardKnobs(dg.Config):
    validation_fraction: float | None = Field(
        default=None, description="Share of the documents that is held out, by hash of their id."
    )


def values(knobs: type[dg.Config], settings: dict[str, Any]) -> dict[str, Any]:
    """What `settings` says for each of the knobs; what it leaves open is left out."""
    found = {}
    for name, field in knobs.model_fields.items():
        value = settings.get(name)
        if (
            isinstance(value, dict)
            and isinstance(field.annotation, type)
            and issubclass(field.annotation, dg.Config)
        ):
            value = values(field.annotation, value) or None
        if value is not None:
            found[name] = value
    return found
