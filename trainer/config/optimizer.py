"""The optimizer, and its learning rate over the run."""

from typing import Literal, Self

from pydantic import Field, model_validator

from trainer.config.base import Config

OptimizerKind = Literal["adamw", "adamw_8bit", "adafactor", "lion", "sophia", "muon"]
USUAL_BETAS = {"lion": (0.9, 0.99), "sophia": (0.965, 0.99)}


class ParameterGroup(Config):
    """The parameters whose name fits `pattern` (`*`, `?`, `[...]`) and no group's before: what is different
    for them.
    """

    pattern: str = Field(min_length=1)
    lr_multiplier: float = Field(default=1.0, ge=0)
    weight_decay: float | None = Field(default=None, ge=0)


class OptimizerConfig(Config):
    """One rule for everything, or with `muon` Muon for the matrices inside blocks, at `muon_lr`, and AdamW
    for the rest.

    Weight decay applies to matrices, never to norms and embeddings, unless a group says so. `betas` None:
    those usual for the kind (AdamW's 0.9 and 0.95). `adamw_8bit` keeps its moments in 8 bits and needs
    torchao. `sophia` is Sophia-G (Liu et al. 2023): clipped where |m| > rho h, the curvature h estimated each
    `sophia_interval` steps at the price of another pass.
    """

    kind: OptimizerKind = "adamw"
    lr: float = Field(default=3e-3, gt=0)
    groups: list[ParameterGroup] = Field(default=[])
    betas: tuple[float, float] | None = None
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    muon_lr: float = Field(default=0.01, gt=0)
    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    muon_steps: int = Field(default=5, ge=1)
    sophia_rho: float = Field(default=0.04, gt=0)
    sophia_interval: int = Field(default=10, ge=1)

    @property
    def resolved_betas(self) -> tuple[float, float]:
        return self.betas or USUAL_BETAS.get(self.kind, (0.9, 0.95))


class ScheduleConfig(Config):
    """Linear warmup over `warmup_tokens`, then the course of the learning rate to the end of the run, never
    below `min_lr_ratio` of its peak.

    `wsd` (warmup, stable, decay) is flat and falls over the last `decay_fraction` of the run as `decay` says:
    in a line, as 1 - sqrt, or as a cosine. `inverse_sqrt` falls as sqrt(warmup_tokens / tokens).
    """

    kind: Literal["cosine", "linear", "constant", "inverse_sqrt", "wsd"] = "cosine"
    warmup_tokens: int = Field(default=0, ge=0)
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    decay_fraction: float = Field(default=0.6, gt=0, le=1)
    decay: Literal["linear", "sqrt", "cosine"] = "linear"

    @model_validator(mode="after")
    def _inverse_sqrt_has_a_warmup(self) -> Self:
        if self.kind == "inverse_sqrt" and not self.warmup_tokens:
            raise ValueError("inverse_sqrt falls from the end of the warmup: set schedule.warmup_tokens")
        return self

    def check(self, tokens: int, where: str = "") -> None:
        """ValueError when the course does not fit into `tokens`."""
        decay = int(self.decay_fraction * tokens) if self.kind == "wsd" else 0
        if self.warmup_tokens + decay > tokens:
            then = (
                f" and a decay over {decay} of them (schedule.decay_fraction {self.decay_fraction})"
                if decay
                else ""
            )
            raise ValueError(
                f"{where}schedule.warmup_tokens {self.warmup_tokens}{then} do not fit into the {tokens} "
                f"tokens of {self.kind}, which would never "
                "reach its peak; shorten them or train longer"
            )
