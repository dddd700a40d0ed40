"""`duration:` of a recipe."""

from typing import Self

from pydantic import Field, model_validator

from pipeline.store.params import Params
from trainer.config import TrainingConfig


class DurationParams(Params):
    """The length of a training in minutes on the machine that it first runs on."""

    minutes: float = Field(
        gt=0,
        le=100_000,
        description="About how many minutes the steps take. The first run measures the speed of training on "
        "its machine for some seconds and records the number of tokens; later runs take the same number. "
        "Where `launch` starts more than one process, nothing is measured and `max_tokens` are taken.",
    )
    min_tokens: int = Field(ge=1, description="Fewest tokens, however slow the machine is.")
    max_tokens: int = Field(
        ge=1,
        description="Most tokens, however fast the machine is. `every_tokens` of `training.checkpoint` and "
        "`training.evaluation` are for this length, and shrink with it.",
    )

    def check(self, training: TrainingConfig) -> None:
        """Raises ValueError for a training with lengths that this does not know how to shorten."""
        if training.stages or training.averaging:
            section = "stages" if training.stages else "averaging"
            raise ValueError(
                f"duration does not know how long training.{section} is meant to be: set "
                "training.max_tokens instead"
            )

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens {self.min_tokens} is more than max_tokens {self.max_tokens}: lower it"
            )
        return self
