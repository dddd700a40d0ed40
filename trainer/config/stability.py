"""Loss spikes, and averages of the weights."""

from typing import Annotated, Literal

from pydantic import Field

from trainer.config.base import Config


class SpikesConfig(Config):
    """What happens when a step's loss or gradient norm is more than 6 standard deviations above its mean over
    the 128 steps before.
    """

    action: Literal["log", "skip"] = Field(
        default="log",
        description="`log`: the spike is recorded. `skip`: the step's update is left out as well; its "
        "tokens count as seen and the schedule continues.",
    )


class ExponentialAverage(Config):
    """An exponential moving average of the weights after each step; at the beginning of a run, their plain
    mean. Takes memory for one more copy of the weights.
    """

    kind: Literal["ema"] = Field(description="Selects this average.")
    half_life_tokens: int = Field(ge=1, description="Tokens after which weights count half in the average.")


class LastAverage(Config):
    """The mean of the weights at the last `k` multiples of `every_tokens` (Kaddour 2022, arXiv 2209.14981).
    Takes memory for `k` more copies of the weights.
    """

    kind: Literal["last_k"] = Field(description="Selects this average.")
    k: int = Field(ge=2, description="How many weights are averaged.")
    every_tokens: int = Field(ge=1, description="Tokens between the weights that are averaged.")


AveragingConfig = Annotated[ExponentialAverage | LastAverage, Field(discriminator="kind")]
