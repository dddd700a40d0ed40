"""How rotary embeddings are stretched to longer contexts, in the words of Hugging Face's config.json."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainer.config.base import Config


class LinearScaling(Config):
    """Every position divided by `factor` (Chen et al. 2023)."""

    rope_type: Literal["linear"]
    factor: float = Field(ge=1)


class Llama3Scaling(Config):
    """Low frequencies divided by `factor`, high ones as they are, a ramp between (Llama 3.1)."""

    rope_type: Literal["llama3"]
    factor: float = Field(ge=1)
    low_freq_factor: float = Field(default=1.0, gt=0)
    high_freq_factor: float = Field(default=4.0, gt=0)
    original_max_position_embeddings: int = Field(ge=1)

    @model_validator(mode="after")
    def _frequencies_are_ordered(self) -> Self:
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor {self.high_freq_factor} must be greater than low_freq_factor "
                f"{self.low_freq_factor}"
            )
        return self


class YarnScaling(Config):
    """YaRN (Peng et al. 2023, arXiv 2309.00071). `attention_factor` None follows from `factor`, as in the
    paper.
    """

    rope_type: Literal["yarn"]
    factor: float = Field(ge=1)
    original_max_position_embeddings: int = Field(ge=1)
    beta_fast: float = Field(default=32.0, gt=0)
    beta_slow: float = Field(default=1.0, gt=0)
    attention_factor: float | None = Field(default=None, gt=0)


RopeScaling = Annotated[LinearScaling | Llama3Scaling | YarnScaling, Field(discriminator="rope_type")]
