"""The optimizer and the schedule of its learning rate."""

import math
from typing import Annotated, Literal

from pydantic import Field

from trainer.config.base import Config

OptimizerKind = Literal["adamw", "muon"]
DecayRate = Annotated[float, Field(ge=0, lt=1)]


class ParameterGroup(Config):
    """Other settings for the parameters whose names match a pattern."""

    pattern: str = Field(
        min_length=1,
        description="Parameter names, with `*`, `?` and `[...]` as wildcards. A parameter belongs to the "
        "first group that it matches.",
    )
    lr_multiplier: float = Field(
        default=1.0, ge=0, description="Factor on the learning rate. 0 freezes the parameters."
    )
    weight_decay: float | None = Field(
        default=None,
        ge=0,
        description="Weight decay of these parameters. When not set, the optimizer's rule.",
    )


# The defaults of Muon suit each other: embeddings and head learn faster than the rest of AdamW's parameters.
EMBEDDING = ParameterGroup(pattern="*embed_tokens*", lr_multiplier=25)
HEAD = ParameterGroup(pattern="lm_head*", lr_multiplier=1.5)


class OptimizerConfig(Config):
    """How gradients become updates of the weights."""

    kind: OptimizerKind = Field(
        default="muon",
        description="The optimizer. `muon`: Muon (Jordan et al. 2024) for the matrices inside blocks and "
        "AdamW for the rest.",
    )
    lr: float = Field(
        default_factory=lambda settings: 2e-3 if settings["kind"] == "muon" else 3e-3,
        gt=0,
        description="Peak learning rate, reached after the warmup. With `muon`, that of AdamW. When not set, "
        "0.002 with `muon` and 0.003 with `adamw`; start lower from existing weights.",
    )
    groups: list[ParameterGroup] = Field(
        default_factory=list,
        description="Parameters with another learning rate or weight decay, by name. A parameter belongs to "
        "the first group that it matches. When not set, none; with `muon`, unless the model has "
        "`tie_embeddings`, 25 times the rate for the embedding and 1.5 times for the head.",
    )
    betas: tuple[DecayRate, DecayRate] = Field(
        default=(0.9, 0.95),
        description="Decay rates (0 to 1) of AdamW's moving averages: of the gradient, and of its square.",
    )
    eps: float = Field(
        default=1e-8,
        gt=0,
        description="Added to the denominator of the update in AdamW against division by zero.",
    )
    weight_decay: float = Field(
        default_factory=lambda settings: 0.0 if settings["kind"] == "muon" else 0.1,
        ge=0,
        description="Decoupled weight decay: each step takes away this share of a weight, times the "
        "learning rate. Applies to matrices, not to norms and embeddings, unless a group sets it. When not "
        "set, 0 with `muon` and 0.1 with `adamw`.",
    )
    max_grad_norm: float | None = Field(
        default=1.0,
        gt=0,
        description="Largest norm of the gradient over all parameters; larger gradients are scaled down to "
        "it. Null turns clipping off.",
    )
    muon_lr: float = Field(
        default=0.01,
        gt=0,
        description="Peak learning rate of Muon, for the matrices inside blocks. Only used with `muon`.",
    )


class ScheduleConfig(Config):
    """The course of the learning rate over the run: a linear warmup, then the schedule."""

    kind: Literal["cosine", "linear", "constant", "wsd"] = Field(
        default="wsd",
        description="How the learning rate falls after the warmup. `cosine`, `linear`: to the end of the "
        "run. `constant`: not at all. `wsd` (warmup, stable, decay): flat, then over the last "
        "`decay_fraction` of the run as `decay` says.",
    )
    warmup_tokens: int = Field(
        default_factory=int,
        ge=0,
        description="Tokens over which the learning rate rises in a line from 0 to its peak. When not set, a "
        "fiftieth of `max_tokens`; in the schedule of a stage, 0.",
    )
    min_lr_ratio: float = Field(
        default_factory=lambda settings: 0.0 if settings["kind"] == "wsd" else 0.1,
        ge=0,
        le=1,
        description="Lowest learning rate after the warmup, as a share (0 to 1) of the peak, and that "
        "of the last step, which with 0 changes nothing. When not set, 0 with `wsd` and 0.1 with any other "
        "kind.",
    )
    decay_fraction: float = Field(
        default=0.6,
        gt=0,
        le=1,
        description="Share (0 to 1) of the run over which the learning rate falls. Only used with `wsd`.",
    )
    decay: Literal["linear", "sqrt"] = Field(
        default="linear",
        description="Shape of the fall: a line, or 1 - sqrt (Hägele et al. 2024). Only used with `wsd`.",
    )

    def check(self, tokens: int, where: str = "") -> None:
        """Raises ValueError when warmup and decay do not fit into `tokens`; `where` begins the message."""
        decay = int(self.decay_fraction * tokens) if self.kind == "wsd" else 0
        if self.warmup_tokens + decay > tokens:
            fall = f" and a decay of {decay} tokens (schedule.decay_fraction {self.decay_fraction})"
            raise ValueError(
                f"{where}schedule.warmup_tokens {self.warmup_tokens}{fall if decay else ''} do not fit into "
                f"the {tokens} tokens of the {self.kind} schedule: lower them, or train on more tokens"
            )

    def share_of_peak(self, tokens: int, max_tokens: int) -> float:
        """The share of the peak learning rate after `tokens` of a schedule over `max_tokens`. 0 < tokens <=
        max_tokens.
        """
        warmup = self.warmup_tokens
        if tokens < warmup:
            return tokens / warmup
        if self.kind == "constant":
            left = 1.0
        elif self.kind == "wsd":
            done = max(0.0, 1 - (max_tokens - tokens) / (self.decay_fraction * max_tokens))
            left = 1 - (math.sqrt(done) if self.decay == "sqrt" else done)
        else:
            done = (tokens - warmup) / max(1, max_tokens - warmup)
            left = 0.5 * (1 + math.cos(math.pi * done)) if self.kind == "cosine" else 1 - done
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * left
