"""The optimizer, and its learning rate over the run."""

from typing import Literal

from pydantic import Field

from trainer.config.base import Config


class OptimizerConfig(Config):
    """AdamW for everything, or Muon for the matrices inside blocks and AdamW for the rest.

    `lr`, `embedding_lr` and `head_lr` are AdamW's (None: the same as `lr`); weight decay applies to matrices, never to norms and embeddings.
    """

    kind: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(default=3e-3, gt=0)
    embedding_lr: float | None = Field(default=None, gt=0)
    head_lr: float | None = Field(default=None, gt=0)
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    muon_lr: float = Field(default=0.01, gt=0)
    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    muon_steps: int = Field(default=5, ge=1)


class ScheduleConfig(Config):
    """Linear warmup over `warmup_tokens`, then a cosine, or a plateau that ends in a line over the last `decay_fraction` of the run."""

    kind: Literal["warmup_cosine", "warmup_stable_linear"] = "warmup_cosine"
    warmup_tokens: int = Field(default=0, ge=0)
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    decay_fraction: float = Field(default=0.6, gt=0, le=1)
