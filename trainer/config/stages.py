"""The stages of a run: consecutive segments that differ in data, seq_len, batch or learning rate."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pydantic import Field, field_validator

from trainer.config.base import Config
from trainer.config.lr_schedule import ScheduleConfig
from trainer.config.optimizer import RateFactor


class StageConfig(Config):
    """One stage of a run. Its end is set by `share` or `until_tokens`, except for the last stage, which may
    leave out both. Other settings that are left out are those of the run.
    """

    name: str = Field(min_length=1)
    """Name of the stage in reports and plots."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Length of the stage as a share (0 to 1) of `max_tokens`."""
    until_tokens: int | None = Field(default=None, ge=1)
    """Tokens of the run, from its beginning, at which the stage ends; instead of `share`."""
    seq_len: int | None = Field(default=None, ge=2)
    """Tokens per window in this stage. Must divide the run's, which is the longest."""
    global_batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens per step in this stage."""
    weights: dict[str, float] | None = Field(default=None, min_length=1)
    """The corpora that the stage reads, by name, each with its weight relative to the others. When not set,
    all corpora as in the run.
    """
    lr_multiplier: RateFactor = 1.0
    """Factor on the learning rate of the schedule in this stage."""
    schedule: ScheduleConfig | None = None
    """Schedule of the learning rate over this stage's tokens. When not set, the run's schedule continues."""

    @field_validator("weights")
    @classmethod
    def _weights_are_positive(cls, weights: dict[str, float] | None) -> dict[str, float] | None:
        for corpus, weight in (weights or {}).items():
            if not weight > 0:
                raise ValueError(
                    f"the weight of {corpus!r} is {weight}: set it above 0, or leave {corpus!r} out"
                )
        return weights


@dataclass(frozen=True)
class CurriculumStage:
    """A stage with all settings: `tokens` tokens after `first_step` steps, `first_token` tokens and
    `first_sample` windows of the run.

    Its `schedule` begins at token `schedule_begin` and lasts `schedule_tokens`. `weights` None: those of the
    corpora.
    """

    name: str
    tokens: int
    seq_len: int
    global_batch_tokens: int
    schedule: ScheduleConfig
    schedule_tokens: int
    schedule_begin: int = 0
    lr_multiplier: float = 1.0
    weights: dict[str, float] | None = None
    first_step: int = 0
    first_token: int = 0
    first_sample: int = 0

    @property
    def steps(self) -> int:
        return self.tokens // self.global_batch_tokens

    @property
    def global_batch_size(self) -> int:
        """Windows in one step, over all processes."""
        return self.global_batch_tokens // self.seq_len

    def lr_factor(self, tokens: int) -> float:
        """The factor of every learning rate in a step of this stage that ends at `tokens` of the run, 0 <
        tokens <= max_tokens.

        The schedule waits after steps skipped in fp16, so `tokens` may lie before the stage, whose own
        schedule then is at its first token.
        """
        done = max(1, tokens - self.schedule_begin)
        return self.lr_multiplier * self.schedule.share_of_peak(done, self.schedule_tokens)


@dataclass(frozen=True)
class Curriculum:
    """The stage of a step, and the tokens and samples before it. Steps count from 0."""

    stages: list[CurriculumStage]

    def stage(self, step: int) -> CurriculumStage:
        """The stage of `step`; the last stage has no end."""
        return self.stages[bisect_right(self.stages, step, key=lambda stage: stage.first_step) - 1]

    @property
    def steps(self) -> int:
        return self.stages[-1].first_step + self.stages[-1].steps

    def tokens(self, steps: int) -> int:
        """Tokens in the first `steps` steps."""
        stage = self.stage(steps)
        return stage.first_token + (steps - stage.first_step) * stage.global_batch_tokens

    def passes(self, step: int, every_tokens: int | None) -> bool:
        """Whether the last of `step` steps reached a multiple of `every_tokens`; never one of None."""
        return (
            every_tokens is not None
            and self.tokens(step) // every_tokens > self.tokens(step - 1) // every_tokens
        )

    @cached_property
    def branch_steps(self) -> frozenset[int]:
        """The numbers of steps after which runs may part that differ in their end only: before each stage
        but the first, and before the learning rate of a `wsd` schedule begins to fall.
        """
        found = {stage.first_step for stage in self.stages}
        for stage in self.stages:
            if stage.schedule.kind == "wsd":
                fall = stage.schedule_begin + stage.schedule.stable_tokens(stage.schedule_tokens)
                steps = (fall - stage.first_token) // stage.global_batch_tokens
                if 0 < steps < stage.steps:
                    found.add(stage.first_step + steps)
        return frozenset(found - {0})

    def step_reading(self, sample: int) -> int:
        """The step that reads a sample, both counted from 0."""
        stage = self.stages[bisect_right(self.stages, sample, key=lambda stage: stage.first_sample) - 1]
        return stage.first_step + (sample - stage.first_sample) // stage.global_batch_size

    def samples(self, steps: int) -> int:
        """Windows in the first `steps` steps."""
        stage = self.stage(steps)
        return stage.first_sample + (steps - stage.first_step) * stage.global_batch_size


def resolve(configs: Sequence[StageConfig], run: CurriculumStage) -> Curriculum:
    """Fills what the stages leave out from `run`. Raises ValueError when they do not add up to the run."""
    names = [config.name for config in configs]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two stages are named {repeated[0]!r}: rename one of them")
    stages: list[CurriculumStage] = []
    before = replace(run, tokens=0)
    for number, config in enumerate(configs, start=1):
        begin = before.first_token + before.tokens
        tokens = _end(config, begin, run.tokens, is_last=number == len(configs)) - begin
        before = CurriculumStage(
            config.name,
            tokens,
            config.seq_len or run.seq_len,
            config.global_batch_tokens or run.global_batch_tokens,
            schedule=config.schedule or run.schedule,
            schedule_begin=begin if config.schedule else 0,
            schedule_tokens=tokens if config.schedule else run.tokens,
            lr_multiplier=config.lr_multiplier,
            weights=config.weights,
            first_step=before.first_step + before.steps,
            first_token=begin,
            first_sample=before.first_sample + before.steps * before.global_batch_size,
        )
        if run.seq_len % before.seq_len:
            raise ValueError(
                f"stage {config.name!r}: seq_len {before.seq_len} must divide training.seq_len "
                f"{run.seq_len}: change one"
            )
        stages.append(before)
    return Curriculum(stages or [run])


def _end(config: StageConfig, begin: int, max_tokens: int, is_last: bool) -> int:
    if config.share is not None and config.until_tokens is not None:
        raise ValueError(f"stage {config.name!r} has both share and until_tokens: leave one out")
    if config.share is not None:
        end = begin + round(config.share * max_tokens)
    elif config.until_tokens is not None or is_last:
        end = config.until_tokens or max_tokens
    else:
        raise ValueError(f"stage {config.name!r} is not the last and has no end: set share or until_tokens")
    if not begin < end <= max_tokens:
        raise ValueError(
            f"stage {config.name!r} would run from token {begin} to {end}, but must end later than it begins "
            f"and within max_tokens {max_tokens}: change share or until_tokens"
        )
    if is_last and end != max_tokens:
        raise ValueError(
            f"the last stage, {config.name!r}, ends at token {end}, not at max_tokens {max_tokens}: make "
            "them equal, or leave out its share and until_tokens"
        )
    return end
