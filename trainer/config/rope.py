"""Methods that stretch rotary embeddings to longer contexts, with the keys of Hugging Face's config.json."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainer.config.base import Config


class LinearScaling(Config):
    """Divides every position by `factor` (Chen et al. 2023)."""

    rope_type: Literal["linear"] = Field(description="Selects this method.")
    factor: float = Field(ge=1, description="How many times longer the context gets.")


class Llama3Scaling(Config):
    """Divides low frequencies by `factor` and keeps high ones, with a ramp between (Llama 3.1)."""

    rope_type: Literal["llama3"] = Field(description="Selects this method.")
    factor: float = Field(ge=1, description="What low frequencies are divided by. 8 in Llama 3.1.")
    low_freq_factor: float = Field(
        default=1.0,
        gt=0,
        description="Frequencies with fewer turns than this over the original context count as low.",
    )
    high_freq_factor: float = Field(
        default=4.0,
        gt=0,
        description="Frequencies with more turns than this over the original context count as high. Must be "
        "greater than `low_freq_factor`.",
    )
    original_max_position_embeddings: int = Field(
        ge=1, description="Tokens of context that the model had before."
    )

    @model_validator(mode="after")
    def _frequencies_are_ordered(self) -> Self:
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor {self.high_freq_factor} must be greater than low_freq_factor "
                f"{self.low_freq_factor}: change one"
            )
        return self


class YarnScaling(Config):
    """Stretches low frequencies only and sharpens attention: YaRN (Peng et al. 2023, arXiv 2309.00071)."""

    rope_type: Literal["yarn"] = Field(description="Selects this method.")
    factor: float = Field(ge=1, description="How many times longer the context gets.")
    original_max_position_embeddings: int = Field(
        ge=1, description="Tokens of context that the model had before."
    )
    beta_fast: float = Field(
        default=32.0,
        gt=0,
        description="Frequencies with more turns than this over the original context stay as they are. 32 "
        "in the paper.",
    )
    beta_slow: float = Field(
        default=1.0,
        gt=0,
        description="Frequencies with fewer turns than this over the original context are divided by "
        "`factor`. 1 in the paper.",
    )
    attention_factor: float | None = Field(
        default=None,
        gt=0,
        description="What the rotated queries and keys are multiplied by. When not set, 0.1 ln(factor) + 1, "
        "as in the paper.",
    )


RopeScaling = Annotated[LinearScaling | Llama3Scaling | YarnScaling, Field(discriminator="rope_type")]
