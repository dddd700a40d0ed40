"""What a run saves, measures and tells while it trains."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from trainer.config.base import Config, WholeText


class CheckpointConfig(Config):
    """When checkpoints are saved and which are kept. One more is saved at the end; `every_tokens` or
    `every_minutes` must be set.
    """

    every_tokens: int | None = Field(default=None, ge=1)
    """Tokens between checkpoints."""
    every_minutes: float | None = Field(default=None, gt=0)
    """Minutes between checkpoints. With `every_tokens`, whichever comes first."""
    keep_last: int = Field(default=3, ge=1)
    """How many of the newest checkpoints stay on disk."""
    keep_every_tokens: int | None = Field(default=None, ge=1)
    """Tokens between checkpoints that are saved and stay on disk for good, beyond the newest ones. When not
    set, none.
    """
    optimizer: Literal["all", "newest", "none"] = "all"
    """Which of the checkpoints on disk keep the optimizer's state, about two thirds of their size, which
    training needs to resume. `newest`: every older checkpoint loses the state once a newer one is complete,
    even a checkpoint that is kept for good. `none`: as `newest` until training ends; then no checkpoint has
    the state, so the finished run cannot be trained further.
    """

    keep_branch_points: bool = True
    """Whether the states from which other trainings are likely to continue stay on disk: the state where a
    stage begins, and the state where the learning rate of `wsd` begins to fall. Each is one more checkpoint.
    Only used if `optimizer` is `all`.
    """

    @property
    def keeps_branch_points(self) -> bool:
        """Whether states are kept for other runs, which need the optimizer's state."""
        return self.keep_branch_points and self.optimizer == "all"

    @model_validator(mode="after")
    def _has_an_interval(self) -> Self:
        if self.every_tokens is None and self.every_minutes is None:
            raise ValueError("set every_tokens or every_minutes")
        return self


class EvaluationConfig(Config):
    """When the loss on held-out text is measured. One more evaluation is made at the end."""

    every_tokens: int = Field(ge=1)
    """Tokens between evaluations on the held-out text."""
    micro_batch_size: int = Field(default=8, ge=1)
    """Windows that are evaluated at a time: at most those of a micro-batch, which fit."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Held-out tokens that an evaluation during training reads at most: windows spread evenly over each
    corpus, the same at every evaluation. Set it when evaluations take too much of the time. When not set,
    all. The final evaluation and those of single checkpoints read all in any case.
    """


# Logits divided by less than this can overflow.
LOWEST_TEMPERATURE = 1e-6


class SamplesConfig(Config):
    """Text that the model writes when a checkpoint is evaluated."""

    prompts: list[WholeText] = Field(default=[])
    """Texts that the model continues. An empty list writes none."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Tokens to write at most for each prompt."""
    temperature: float = Field(default=0.8, ge=0, le=1e6)
    """Divides the logits before a token is drawn. Lower is more predictable; 0 always takes the likeliest
    token.
    """
    top_k: int = Field(default=40, ge=0)
    """How many of the likeliest tokens can be drawn. 0: all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Only the likeliest tokens that together reach this probability (0 to 1) can be drawn."""

    @field_validator("temperature")
    @classmethod
    def _logits_stay_finite(cls, temperature: float) -> float:
        if 0 < temperature < LOWEST_TEMPERATURE:
            raise ValueError(f"must be 0 or at least {LOWEST_TEMPERATURE:g}, not {temperature:g}")
        return temperature


class Bookkeeping(Config):
    """Checkpoints, evaluations, samples and metrics."""

    checkpoint: CheckpointConfig
    """When checkpoints are saved and which are kept."""
    evaluation: EvaluationConfig
    """When the loss on held-out text is measured."""
    samples: SamplesConfig = SamplesConfig()
    """Text that the model writes at evaluations."""
    log_every_steps: int = Field(default=1, ge=1)
    """Steps between lines of metrics."""
    shared_states: Literal["exact", "rounded", "none"] = "exact"
    """Which states of other trainings a training continues from instead of computing them again. `exact`:
    states that the training would reach itself, on a CPU to the last bit, on a GPU up to rounding. `rounded`:
    also states that were computed with another number of threads, processor, micro-batch or split, whose last
    bits differ. `none`: no state is shared, and every token is trained.
    """
    sinks: list[Literal["mlflow", "trackio", "wandb"]] = Field(default=[])
    """Trackers that metrics and settings are sent to as well: MLflow, trackio or Weights & Biases. Each needs
    the extra of its name. docs/trainer.md says how each is configured. metrics.jsonl and TensorBoard are
    always written.
    """
