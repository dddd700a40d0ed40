"""A recipe's `training` section: everything about a run but its data."""

from collections.abc import Collection
from typing import Literal, Self

from pydantic import Field, model_validator

from trainer.config.base import Config
from trainer.config.model import InitConfig, ModelConfig, PretrainedConfig
from trainer.config.optimizer import OptimizerConfig, ScheduleConfig
from trainer.config.parallel import ParallelConfig
from trainer.config.stability import AveragingConfig, SpikesConfig
from trainer.config.stages import Curriculum, Stage, StageConfig, resolve


class CheckpointConfig(Config):
    """A checkpoint each `every_tokens` or each `every_minutes`, whichever comes first, and at the end; the
    newest `keep_last` stay.

    One at each multiple of `keep_every_tokens` stays for good. `model_only` leaves the optimizer's state out:
    a third of the size, but no run goes on from it. What a stop signal saves is whole all the same.
    """

    every_tokens: int | None = Field(default=None, ge=1)
    every_minutes: float | None = Field(default=None, gt=0)
    keep_last: int = Field(default=3, ge=1)
    keep_every_tokens: int | None = Field(default=None, ge=1)
    model_only: bool = False

    @model_validator(mode="after")
    def _comes_now_and_then(self) -> Self:
        if self.every_tokens is None and self.every_minutes is None:
            raise ValueError("set every_tokens or every_minutes")
        return self


class EvaluationConfig(Config):
    """Validation each `every_tokens` and at the end, in micro-batches of `micro_batch_size` windows."""

    every_tokens: int = Field(ge=1)
    micro_batch_size: int = Field(default=8, ge=1)


class SamplesConfig(Config):
    """Text that the model writes at each evaluation.

    `temperature` 0 takes the likeliest token; `top_k` tokens (0: all), and of those the likeliest that make
    up `top_p`, can be drawn.
    """

    prompts: list[str] = Field(default=[])
    max_new_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=0.8, ge=0)
    top_k: int = Field(default=40, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)


class TrainingConfig(Config):
    """A recipe's `training` section. Units are tokens; steps and accumulation follow from them.

    `packing` best_fit: a window starts at a document and cuts none that fits, its padding counted as tokens
    seen, not as predicted. `z_loss` is the weight of log(Z)^2 beside the cross-entropy, usually 1e-4 when it
    is wanted. `dropout` is of the embedding and of what each block adds. In fp16 a step whose gradients
    overflow is skipped: its tokens are consumed, the schedule waits. fp8 is bf16 with the products inside
    blocks in 8 bits. `stages` divide the run; all have as many tokens in a micro-batch. With `averaging` the
    average of the weights is what is evaluated, sampled from and exported.
    """

    model: ModelConfig
    seq_len: int = Field(ge=2)
    global_batch_tokens: int = Field(ge=1)
    micro_batch_size: int = Field(ge=1)
    max_tokens: int = Field(ge=1)
    seed: int = Field(default=0, ge=0)
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16", "fp8"] = "auto"
    compile: bool | Literal["auto"] = False
    attention: Literal["auto", "math", "sdpa", "flex", "flash"] = "auto"
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    packing: Literal["windows", "best_fit"] = "windows"
    document_masking: bool | Literal["auto"] = "auto"
    pretrained: PretrainedConfig | None = None
    init: InitConfig = InitConfig()
    dropout: float = Field(default=0.0, ge=0, lt=1)
    z_loss: float = Field(default=0.0, ge=0)
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    stages: list[StageConfig] = Field(default=[])
    spikes: SpikesConfig = SpikesConfig()
    averaging: AveragingConfig | None = None
    checkpoint: CheckpointConfig
    evaluation: EvaluationConfig
    samples: SamplesConfig = SamplesConfig()
    log_every_steps: int = Field(default=1, ge=1)
    threads: int | None = Field(default=None, ge=1)
    parallel: ParallelConfig = ParallelConfig()

    @model_validator(mode="after")
    def _steps_are_whole_and_schedules_fit(self) -> Self:
        micro = self.micro_batch_tokens
        for stage in self.curriculum.stages:
            where = f"stage {stage.name!r}: " if self.stages else ""
            batch = stage.global_batch_tokens
            if batch % micro:
                raise ValueError(
                    f"{where}global_batch_tokens {batch} is not a multiple of seq_len x micro_batch_size "
                    f"({self.seq_len} x {self.micro_batch_size} = {micro}); set it to "
                    f"{_nearest(batch, micro)} or change micro_batch_size"
                )
            if stage.tokens % batch:
                to = stage.first_token + _nearest(stage.tokens, batch)
                told = f"until_tokens: {to}" if self.stages else f"it to {to}"
                what = f"{stage.tokens} tokens are" if self.stages else f"max_tokens {stage.tokens} is"
                raise ValueError(
                    f"{where}{what} not a whole number of steps of global_batch_tokens {batch}; set {told}"
                )
            if self.packing == "best_fit" and stage.seq_len != self.seq_len:
                raise ValueError(
                    f"{where}packing best_fit fills windows of one seq_len: leave the stage's out, or set "
                    "packing: windows"
                )
            stage.schedule.check(stage.schedule_tokens, where)
        return self

    @model_validator(mode="after")
    def _averages_are_of_a_part_of_the_run(self) -> Self:
        key = (
            {"ema": "half_life_tokens", "last_k": "every_tokens"}[self.averaging.kind]
            if self.averaging
            else None
        )
        if key and getattr(self.averaging, key) > self.max_tokens:
            raise ValueError(
                f"averaging.{key} {getattr(self.averaging, key)} is more than max_tokens {self.max_tokens}: "
                "set it below"
            )
        return self

    @model_validator(mode="after")
    def _can_be_split(self) -> Self:
        for stage in self.curriculum.stages:
            self.parallel.check(self.model, stage.seq_len, self.optimizer.kind, self.dropout)
        return self

    def check_corpora(self, names: Collection[str]) -> None:
        """ValueError when a stage weighs a corpus that is not of these `names`."""
        for stage in self.stages:
            for unknown in [corpus for corpus in stage.weights or () if corpus not in names]:
                raise ValueError(
                    f"stage {stage.name!r} reads {unknown!r}, which is no corpus with text to train on; "
                    f"there are {', '.join(names)}"
                )

    @property
    def micro_batch_tokens(self) -> int:
        """What is computed at a time in one process, however long the windows of a stage are."""
        return self.micro_batch_size * self.seq_len

    @property
    def curriculum(self) -> Curriculum:
        """The stages of the run; one when `stages` has none."""
        run = Stage(
            "",
            self.max_tokens,
            self.seq_len,
            self.global_batch_tokens,
            self.schedule,
            schedule_tokens=self.max_tokens,
        )
        return resolve(self.stages, run)

    @property
    def steps(self) -> int:
        return self.curriculum.steps


def _nearest(tokens: int, unit: int) -> int:
    return max(1, round(tokens / unit)) * unit
