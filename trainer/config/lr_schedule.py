"""The course of the learning rate over a run."""

import math
from typing import Literal

from pydantic import Field

from trainer.config.base import Config


class ScheduleConfig(Config):
    """The course of the learning rate over the run: a linear warmup, then the schedule."""

    kind: Literal["cosine", "linear", "constant", "wsd"] = "wsd"
    """How the learning rate falls after the warmup. `cosine`, `linear`: to the end of the run. `constant`:
    not at all. `wsd` (warmup, stable, decay): flat, then over the last `decay_fraction` of the run as `decay`
    says.
    """
    warmup_tokens: int = Field(default_factory=int, ge=0)
    """Tokens over which the learning rate rises linearly from 0 to its peak. When not set, the tokens of 2 /
    (1 - the second of `betas`) steps, usually 40 steps, but at most a tenth of `max_tokens`; in the schedule
    of a stage, 0.
    """
    min_lr_ratio: float = Field(
        default_factory=lambda settings: 0.0 if settings["kind"] == "wsd" else 0.1, ge=0, le=1
    )
    """Lowest learning rate after the warmup, as a share (0 to 1) of the peak. The last step has this rate, so
    with 0 the last step changes nothing. When not set, 0 with `wsd` and 0.1 with any other kind.
    """
    decay_fraction: float = Field(default=0.6, gt=0, le=1)
    """Share (0 to 1) of the run over which the learning rate falls. Only used with `wsd`."""
    decay: Literal["linear", "sqrt"] = "linear"
    """Shape of the fall: a line, or 1 - sqrt (Hägele et al. 2024). Only used with `wsd`."""

    def check(self, tokens: int, where: str = "") -> None:
        """Raises ValueError when warmup and decay do not fit into `tokens`; `where` begins the message."""
        decay = int(self.decay_fraction * tokens) if self.kind == "wsd" else 0
        if self.warmup_tokens + decay > tokens:
            fall = f" and a decay of {decay} tokens (schedule.decay_fraction {self.decay_fraction})"
            raise ValueError(
                f"{where}schedule.warmup_tokens {self.warmup_tokens}{fall if decay else ''} do not fit into "
                f"the {tokens} tokens of the {self.kind} schedule: lower them, or train on more tokens"
            )

    def stable_tokens(self, max_tokens: int) -> int:
        """The tokens of a schedule over `max_tokens` before the learning rate of `wsd` begins to fall."""
        return max_tokens - math.ceil(self.decay_fraction * max_tokens) if self.kind == "wsd" else max_tokens

    def share_of_peak(self, tokens: int, max_tokens: int) -> float:
        """The share of the peak rate after `tokens` of a schedule: 0 < tokens <= max_tokens."""
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
