"""How weights begin, and how they change."""

from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from trainer.config.base import Config
from trainer.config.lr_schedule import ScheduleConfig
from trainer.config.model import InitConfig, PretrainedConfig
from trainer.config.optimizer import EMBEDDING, HEAD, OptimizerConfig
from trainer.config.stages import StageConfig

LONGEST_WARMUP = 0.1  # share of the run
NEEDED_BY_WARMUP = {"max_tokens", "global_batch_tokens", "optimizer"}


class SpikesConfig(Config):
    """What happens when a step's loss or gradient norm is more than 6 standard deviations above its mean over
    the 128 steps before.
    """

    action: Literal["log", "skip"] = "log"
    """`log`: the spike is recorded. `skip`: the step's update is left out as well; its tokens count as seen
    and the schedule continues.
    """


class AveragingConfig(Config):
    """Averages of the weights. `half_life_tokens`: an exponential moving average of the weights after each
    step; at the beginning of a run, their plain mean. Takes memory for one more copy of the weights. Every
    checkpoint then has the averaged weights. `checkpoints`: the plain mean of the last checkpoints, made when
    training ends, without training. With both, it is the mean of the averaged weights.
    """

    half_life_tokens: int | None = Field(default=None, ge=1)
    """Tokens after which weights count half in the moving average. When not set, there is no moving average.
    """
    checkpoints: int | None = Field(default=None, ge=2)
    """Number of last checkpoints whose mean is the final model. These checkpoints stay on disk, those beyond
    `checkpoint.keep_last` without the optimizer's state. A change of this number trains nothing again as long
    as the checkpoints exist. When not set, the final model is the last checkpoint.
    """
    every_tokens: int | None = Field(default=None, ge=1)
    """Tokens between the checkpoints of the mean, which are saved beside those that `checkpoint` asks for.
    When not set, `checkpoint.every_tokens`.
    """

    @model_validator(mode="after")
    def _averages_something(self) -> Self:
        if self.half_life_tokens is None and self.checkpoints is None:
            raise ValueError("set checkpoints or half_life_tokens, or leave averaging out")
        if self.every_tokens is not None and self.checkpoints is None:
            raise ValueError("every_tokens is of the mean of checkpoints: set checkpoints, too")
        return self


class Learning(Config):
    """First weights, loss, updates and the stages of a run."""

    pretrained: PretrainedConfig | None = None
    """Weights to start from. When not set, `init` sets the initial weights."""
    init: InitConfig = InitConfig()
    """The initial weights of a model trained from scratch."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share (0 to 1) of numbers set to zero in the embedding and in the output of each block. Helps if text
    is repeated often.
    """
    z_loss: float = Field(default=0.0, ge=0)
    """Weight of log(Z)^2 in the loss (PaLM, section 5), against drifting logits; 1e-4 when it is used. 0
    turns it off.
    """
    optimizer: OptimizerConfig = Field(default=OptimizerConfig(), validate_default=True)
    """How gradients become updates."""
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), validate_default=True)
    """The course of the learning rate."""
    stages: list[StageConfig] = Field(default=[])
    """Stages that divide the run and may differ in data, window, batch and learning rate, in order. All have
    the same number of tokens per micro-batch. An empty list is one stage.
    """
    control: Literal["duplicates", "shuffled"] | None = None
    """Spoils the text that the run reads, to make a negative control that must lose against the same run
    without this setting. `duplicates`: the second half of the text from a corpus repeats the first half, and
    at most half of each corpus is read. `shuffled`: the tokens of each window are in random order.
    """
    spikes: SpikesConfig = SpikesConfig()
    """What happens when loss or gradients jump."""
    averaging: AveragingConfig | None = None
    """An average of the weights, which is then evaluated, sampled from and exported. When not set, the
    trained weights themselves.
    """

    @property
    def moving_average(self) -> int | None:
        """The tokens after which weights count half in their moving average; None without one."""
        return self.averaging.half_life_tokens if self.averaging else None

    @field_validator("optimizer")
    @classmethod
    def _groups_of_muon(cls, optimizer: OptimizerConfig, settings: ValidationInfo) -> OptimizerConfig:
        """The default groups, which depend on the model: one with tied embeddings has no head of its own."""
        model = settings.data.get("model")
        if "groups" in optimizer.model_fields_set or optimizer.kind != "muon" or model is None:
            return optimizer
        return optimizer.with_derived(groups=[] if model.tie_embeddings else [EMBEDDING, HEAD])

    @field_validator("schedule")
    @classmethod
    def _warmup(cls, schedule: ScheduleConfig, settings: ValidationInfo) -> ScheduleConfig:
        """The default warmup: 2 / (1 - beta2) steps (Ma and Yarats 2021, arXiv 1910.04209). Only in short
        runs does it depend on their length, so that longer ones share their first steps.
        """
        known: dict[str, Any] = settings.data  # without those that are not valid
        if "warmup_tokens" in schedule.model_fields_set or not known.keys() >= NEEDED_BY_WARMUP:
            return schedule
        tokens, beta2 = known["max_tokens"], known["optimizer"].betas[1]
        most = min(LONGEST_WARMUP * tokens, schedule.stable_tokens(tokens))
        return schedule.with_derived(
            warmup_tokens=round(min(2 / (1 - beta2) * known["global_batch_tokens"], most))
        )
