"""A recipe's `training` section: everything about a run except its data."""

from collections.abc import Collection
from itertools import islice
from typing import Any, Self

from pydantic import Field, model_validator

from trainer.config import depth
from trainer.config.batches import Rows, Sizes
from trainer.config.bookkeeping import Bookkeeping
from trainer.config.learning import Learning
from trainer.config.numerics import Numerics
from trainer.config.parallel import ParallelConfig
from trainer.config.stages import Curriculum, CurriculumStage, resolve
from trainer.config.tuning import ROWS, Tuning, with_rows

# Settings that do not change the weights, up to rounding.
OPERATIONAL = {
    "micro_batch_size",
    "compile",
    "attention",
    "activation_checkpointing",
    "checkpoint",
    "evaluation",
    "samples",
    "log_every_steps",
    "shared_states",
    "sinks",
    "threads",
    "parallel",
}


# The last base has the first settings: in their order they are documented, written and checked.
class TrainingConfig(Bookkeeping, Learning, Rows, Numerics, Tuning, Sizes):
    """A recipe's `training` section: the model and its training. Units are tokens; steps and accumulation
    follow from them.
    """

    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads of each process. When not set, the physical cores divided by the processes of this machine.
    """
    parallel: ParallelConfig = ParallelConfig()
    """How several processes share the work."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_depth(cls, values: Any) -> Any:
        model = values.get("model") if isinstance(values, dict) else None
        return depth.filled_in(values) if isinstance(model, dict) and "depth" in model else values

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_rows(cls, values: Any) -> Any:
        return with_rows(values)

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        micro = self.micro_batch_tokens
        for stage in self.curriculum.stages:
            where = f"stage {stage.name!r}: " if self.stages else ""
            batch = stage.global_batch_tokens
            if batch % micro:
                change = "seq_len" if self.micro_batch_size == "auto" else "micro_batch_size"
                raise ValueError(
                    f"{where}global_batch_tokens {batch} is not a multiple of seq_len x micro_batch_size "
                    f"({self.seq_len} x {self.micro_batch_windows} = {micro}); set it to "
                    f"{_nearest(batch, micro)} or change {change}"
                )
            if stage.tokens % batch:
                length = f"its {stage.tokens} tokens are" if self.stages else f"max_tokens {stage.tokens} is"
                end = stage.first_token + _nearest(stage.tokens, batch)
                change = self._how_to_end(stage.name, end) if self.stages else f"set it to {end}"
                raise ValueError(f"{where}{length} not a multiple of global_batch_tokens {batch}; {change}")
            if self.packing == "best_fit" and stage.seq_len != self.seq_len:
                raise ValueError(
                    f"{where}packing best_fit needs the same seq_len in the entire run: leave out the "
                    "stage's seq_len, or set packing to windows"
                )
        return self

    def _how_to_end(self, name: str, end: int) -> str:
        """What to write so that the stage of this name ends at token `end`."""
        written = next(stage for stage in self.stages if stage.name == name)
        if written.share is not None:
            change = f"replace its share by until_tokens: {end}"
        elif written.until_tokens is not None:
            change = f"set until_tokens to {end}"
        else:
            return f"set max_tokens to {end}"
        return f"{change}, and max_tokens to {end}" if written is self.stages[-1] else change

    @model_validator(mode="after")
    def _the_length_suffices(self) -> Self:
        if self.averaging and self.averaging.checkpoints and self._averaged_every is None:
            raise ValueError(
                "averaging.checkpoints needs checkpoints at fixed steps: set averaging.every_tokens, or "
                "checkpoint.every_tokens"
            )
        if self.objective == "pretrain":  # tuning is as long as its text, which is not known yet
            self.check_length()
        return self

    def check_length(self) -> None:
        """Raises ValueError if the run is too short for its warmup, its decay or its averages."""
        for stage in self.curriculum.stages:
            stage.schedule.check(stage.schedule_tokens, f"stage {stage.name!r}: " if self.stages else "")
        if self.averaging is None:
            return
        half_life, number = self.averaging.half_life_tokens, self.averaging.checkpoints
        if half_life is not None and half_life > self.max_tokens:
            raise ValueError(
                f"averaging.half_life_tokens {half_life} is more than max_tokens {self.max_tokens}: lower it"
            )
        if number is not None and len(self.averaged_steps) < number:
            raise ValueError(
                f"averaging.checkpoints {number}: with one every {self._averaged_every} tokens, a run of "
                f"{self.max_tokens} tokens has only {len(self.averaged_steps)}: lower "
                "averaging.every_tokens, or averaging.checkpoints"
            )

    @model_validator(mode="after")
    def _attention_has_sinks(self) -> Self:
        if self.attention == "flash" and self.model.attention_sinks:
            raise ValueError(
                "attention flash has no attention sinks: set attention: auto, or model.attention_sinks: false"
            )
        return self

    @model_validator(mode="after")
    def _can_be_split(self) -> Self:
        for stage in self.curriculum.stages:
            self.parallel.check(self.model, stage.seq_len, self.optimizer.kind, self.dropout)
        return self

    @model_validator(mode="after")
    def _can_be_adapted(self) -> Self:
        needed = {
            # Tuning begins with the weights of another run, which `RunConfig` knows.
            "pretrained weights": self.pretrained is not None or self.objective != "pretrain",
            "optimizer.kind adamw": self.optimizer.kind == "adamw",
            "a model that parallel does not split": not self.parallel.splits_model,
            "a precision other than fp8": self.precision != "fp8",
        }
        for what, given in needed.items():
            if self.lora and not given:
                raise ValueError(f"lora needs {what}: change that, or leave lora out")
        return self

    @model_validator(mode="after")
    def _can_be_tuned(self) -> Self:
        if self.objective == "pretrain":
            return self
        for name, needed in ROWS.items():
            if getattr(self, name) != needed:
                raise ValueError(
                    f"objective {self.objective} needs {name} {str(needed).lower()}, so that conversations "
                    f"are whole and apart: leave {name} out"
                )
        if self.control:
            raise ValueError(f"control {self.control} is for pretraining: leave it out")
        if self.objective == "dpo" and self.parallel.pp > 1:
            raise ValueError("objective dpo cannot be split by parallel.pp: use parallel.dp_shard")
        if self.objective == "dpo" and self.optimizer.kind == "sophia":
            raise ValueError(
                "optimizer.kind sophia estimates the curvature of a loss per token, and objective dpo has "
                "a loss per pair: choose adamw"
            )
        return self

    def check_corpora(self, names: Collection[str]) -> None:
        """Raises ValueError when a stage has a weight for a corpus that is not in `names`."""
        for stage in self.stages:
            for unknown in [corpus for corpus in stage.weights or () if corpus not in names]:
                raise ValueError(
                    f"stage {stage.name!r}: weights has {unknown!r}, which is not a corpus with training "
                    f"text; use {', '.join(names)}"
                )

    @property
    def is_steady(self) -> bool:
        """Whether a document that is removed or added changes no step before the first that reads it."""
        return self.packing == "documents"

    @property
    def micro_batch_windows(self) -> int:
        """Windows of `seq_len` that one process computes at a time: one, until `auto` is resolved."""
        return 1 if self.micro_batch_size == "auto" else self.micro_batch_size

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens that one process computes at a time, in every stage."""
        return self.micro_batch_windows * self.seq_len

    @property
    def curriculum(self) -> Curriculum:
        """The stages of the run; a single one when `stages` is empty."""
        tokens, batch = self.max_tokens, self.global_batch_tokens
        run = CurriculumStage("", tokens, self.seq_len, batch, self.schedule, schedule_tokens=tokens)
        return resolve(self.stages, run)

    @property
    def steps(self) -> int:
        return self.curriculum.steps

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that decide the trained states, as JSON. Means of checkpoints are made after them."""
        tokens = self.moving_average
        averaging = None if tokens is None else {"half_life_tokens": tokens}
        return {**self.model_dump(mode="json", exclude=OPERATIONAL), "averaging": averaging}

    @property
    def _averaged_every(self) -> int | None:
        averaging = self.averaging
        return (averaging and averaging.every_tokens) or self.checkpoint.every_tokens

    @property
    def averaged_steps(self) -> Collection[int]:
        """The steps whose checkpoints the final model is the mean of: the last one of the run, and those
        before it that are saved every so many tokens. Empty without `averaging.checkpoints`.
        """
        if self.averaging is None or self.averaging.checkpoints is None:
            return ()
        curriculum, steps = self.curriculum, self.steps
        saved = (step for step in range(steps - 1, 0, -1) if curriculum.passes(step, self._averaged_every))
        return sorted([steps, *islice(saved, self.averaging.checkpoints - 1)])


def _nearest(tokens: int, unit: int) -> int:
    return max(1, round(tokens / unit)) * unit
