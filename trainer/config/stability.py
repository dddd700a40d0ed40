"""What a run does about steps out of line, and which weights it gives away."""

from typing import Annotated, Literal

from pydantic import Field

from trainer.config.base import Config


class SpikesConfig(Config):
    """What follows when a step's loss or gradient norm is more than 6 standard deviations above its mean over
    the 128 steps before.

    `log`: it is written down. `skip`: its update is left out as well; its tokens count as seen and the
    schedule goes on. `rollback`: training goes back to the newest checkpoint that is at least
    `rollback_steps` before it, or the oldest there is, and on from there with the samples that follow the
    spike (PaLM, section 5.1); where there is no checkpoint the update is left out. More than `max_rollbacks`
    end the run.
    """

    action: Literal["log", "skip", "rollback"] = "log"
    rollback_steps: int = Field(default=100, ge=1)
    max_rollbacks: int = Field(default=5, ge=1)


class ExponentialAverage(Config):
    """An exponential moving average of the weights after each step; at the beginning of a run, their plain
    mean. Takes memory for one more copy of the weights.
    """

    kind: Literal["ema"] = Field(description="Selects this average.")
    half_life_tokens: int = Field(ge=1, description="Tokens after which weights count half in the average.")


class LastAverage(Config):
    """The mean of the latest weights (Kaddour 2022, arXiv 2209.14981). Takes memory for `k` more copies of
    the weights.
    """

    kind: Literal["last_k"] = Field(description="Selects this average.")
    k: int = Field(ge=2, description="How many weights are averaged.")
    every_tokens: int = Field(ge=1, description="Tokens between the weights that are averaged.")


AveragingConfig = Annotated[ExponentialAverage | LastAverage, Field(discriminator="kind")]
