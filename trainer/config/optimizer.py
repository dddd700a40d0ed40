"""The optimizer: how gradients become updates, with the peak of its learning rate."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from trainer.config.base import Config

OptimizerKind = Literal["adamw", "muon", "adafactor", "lion", "sophia", "adamw_8bit", "python"]
DecayRate = Annotated[float, Field(ge=0, lt=1)]
# Their products are numbers in fp32, as what they are multiplied with.
Rate = Annotated[float, Field(gt=0, le=1e30)]
RateFactor = Annotated[float, Field(ge=0, le=1e4)]

# What is usual for a kind, where it is not what is usual for AdamW. Of the rates tried on the default recipe
# (`performance/optimizers.py --sweep`), those of Lion and Sophia are next to the best.
USUAL_LR = {"muon": 2e-3, "lion": 1e-3, "sophia": 1e-3, "python": 1e-3}
USUAL_BETAS = {"lion": (0.9, 0.99), "sophia": (0.965, 0.99)}
USUAL_DECAY = {"muon": 0.0, "lion": 0.3, "python": 0.0}
CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# A number as YAML 1.2 writes it, which YAML 1.1 reads as text.
EXPONENTIAL = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


class ParameterGroup(Config):
    """Other settings for the parameters whose names match a pattern."""

    pattern: str = Field(min_length=1)
    """Parameter names, with `*`, `?` and `[...]` as wildcards. A parameter belongs to the first group that it
    matches.
    """
    lr_multiplier: RateFactor = 1.0
    """Factor on the learning rate. 0 freezes the parameters."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Weight decay of these parameters. When not set, the optimizer's rule."""


# The defaults of Muon suit each other: embeddings and head learn faster than the rest of AdamW's parameters.
EMBEDDING = ParameterGroup(pattern="*embed_tokens*", lr_multiplier=25)
HEAD = ParameterGroup(pattern="lm_head*", lr_multiplier=1.5)


class OptimizerConfig(Config):
    """How gradients become updates of the weights."""

    kind: OptimizerKind = "muon"
    """The optimizer. `muon`: Muon (Jordan et al. 2024) for the matrices inside blocks and AdamW for the rest.
    `adafactor` (Shazeer and Stern 2018), `lion` (Chen et al. 2023) and `adamw_8bit`, whose moments have 8
    bits and which needs torchao, take less memory than AdamW. `sophia`: Sophia-G (Liu et al. 2023), which
    divides by an estimate of the curvature. `python`: the class that `python` names. docs/trainer.md compares
    them.
    """
    lr: Rate = Field(default_factory=lambda settings: USUAL_LR.get(settings["kind"], 3e-3))
    """Peak learning rate, reached after the warmup. With `muon`, this is the rate of AdamW, and `muon_lr`
    that of the matrices inside blocks. When not set, 0.002 with `muon`, 0.001 with `lion`, `sophia` and
    `python`, and 0.003 with any other kind; start lower from existing weights.
    """
    groups: list[ParameterGroup] = Field(default_factory=list)
    """Parameters with another learning rate or weight decay, by name. A parameter belongs to the first group
    that it matches. When not set, none; with `muon`, unless the model has `tie_embeddings`, 25 times the rate
    for the embedding and 1.5 times for the head.
    """
    betas: tuple[DecayRate, DecayRate] = Field(
        default_factory=lambda settings: USUAL_BETAS.get(settings["kind"], (0.9, 0.95))
    )
    """Decay rates (0 to 1) of two moving averages: of the gradient, and of its square (with `sophia`, of the
    curvature). `lion` has one average and mixes it with the gradient by the first rate for an update. When
    not set, 0.9 and 0.99 with `lion`, 0.965 and 0.99 with `sophia`, and 0.9 and 0.95 with any other kind. Not
    used with `adafactor` and `python`.
    """
    eps: float = Field(default=1e-8, gt=0)
    """Added to the denominator of the update in AdamW against division by zero."""
    weight_decay: float = Field(default_factory=lambda settings: USUAL_DECAY.get(settings["kind"], 0.1), ge=0)
    """Decoupled weight decay: each step takes away this share of a weight, times the learning rate. Applies
    to matrices, not to norms and embeddings, unless a group sets it. When not set, 0 with `muon` and
    `python`, 0.3 with `lion`, whose learning rate is a third of AdamW's, and 0.1 with any other kind.
    """
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Largest norm of the gradient over all parameters; larger gradients are scaled down to it. Null turns
    clipping off.
    """
    muon_lr: Rate = 0.01
    """Peak learning rate of Muon, for the matrices inside blocks. Only used with `muon`."""
    sophia_rho: float = Field(default=0.04, gt=0)
    """Clipping of Sophia: a weight moves by the full learning rate where the average gradient exceeds
    `sophia_rho` times the curvature. Lower clips more. Only used with `sophia`.
    """
    python: str | None = None
    """For kind `python`: a subclass of torch.optim.Optimizer, as `package.module:Class`, in a package that is
    installed in .venv or in a directory in PYTHONPATH. It gets parameter groups with `lr` and `weight_decay`.
    """
    version: str | None = None
    """For kind `python`: change it when the code of the class changes, so that the training counts as a new
    run. The code itself is not compared.
    """
    params: dict[str, JsonValue] = Field(default={})
    """For kind `python`: other arguments of the class, by name."""

    @field_validator("params", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, params: Any) -> Any:
        return _with_numbers(params)

    @model_validator(mode="after")
    def _names_a_class(self) -> Self:
        if self.kind == "python" and self.python is None:
            raise ValueError("kind python needs `python`: name a class as `package.module:Class`")
        if self.python is not None and not CLASS.fullmatch(self.python):
            raise ValueError(f"python {self.python!r}: name a class in a module as `package.module:Class`")
        for name in ("lr", "weight_decay"):
            if name in self.params:
                raise ValueError(f"params has {name}, which follows its own setting: set optimizer.{name}")
        return self


def _with_numbers(value: Any) -> Any:
    """The value with numbers in place of texts such as 1e-4, also inside lists and mappings."""
    if isinstance(value, dict):
        return {name: _with_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_numbers(one) for one in value]
    return float(value) if isinstance(value, str) and EXPONENTIAL.fullmatch(value) else value
