"""Loss spikes, and averages of the weights."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from trainer.config.base import Config

# Settings of the removed action `rollback`, at their defaults. They stay in the dump because the fingerprints
# and identities of earlier runs contain them.
REMOVED_KEYS = {"rollback_steps": 100, "max_rollbacks": 5}


class SpikesConfig(Config):
    """What happens when a step's loss or gradient norm is more than 6 standard deviations above its mean over
    the 128 steps before.
    """

    action: Literal["log", "skip"] = Field(
        default="log",
        description="`log`: the spike is recorded. `skip`: the step's update is left out as well; its "
        "tokens count as seen and the schedule continues.",
    )

    @model_validator(mode="before")
    @classmethod
    def _ignore_removed_keys(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if key not in REMOVED_KEYS}
        return values

    @field_validator("action", mode="before")
    @classmethod
    def _rollback_was_removed(cls, action: Any) -> Any:
        if action == "rollback":
            raise ValueError("rollback was removed: set it to skip, which leaves out the update of a spike")
        return action

    @model_serializer(mode="wrap")
    def _with_removed_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**serialize(self), **REMOVED_KEYS}


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
