"""A recipe's `training` section: everything about a run except its data."""

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from trainer.config import depth
from trainer.config.base import Config
from trainer.config.model import InitConfig, ModelConfig, PretrainedConfig
from trainer.config.optimizer import EMBEDDING, HEAD, OptimizerConfig, ScheduleConfig
from trainer.config.parallel import ParallelConfig
from trainer.config.stages import Curriculum, CurriculumStage, StageConfig, resolve
from trainer.config.tuning import ROWS, DpoConfig, LoraConfig, Objective, with_rows

WARMUP = 0.02  # share of the run


class CheckpointConfig(Config):
    """When checkpoints are saved and which are kept. One more is saved at the end; `every_tokens` or
    `every_minutes` must be set.
    """

    every_tokens: int | None = Field(default=None, ge=1, description="Tokens between checkpoints.")
    every_minutes: float | None = Field(
        default=None,
        gt=0,
        description="Minutes between checkpoints. With `every_tokens`, whichever comes first.",
    )
    keep_last: int = Field(default=3, ge=1, description="How many of the newest checkpoints stay on disk.")
    keep_every_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens between checkpoints that are saved and stay on disk for good, beyond the newest "
        "ones. When not set, none.",
    )
    optimizer: Literal["all", "newest", "none"] = Field(
        default="all",
        exclude_if=lambda kept: kept == "all",
        description="Which of the checkpoints on disk keep the optimizer's state, about two thirds of their "
        "size, which training needs to resume. `newest`: an older checkpoint loses it once a newer one is "
        "complete, also one that is kept for good. `none`: as `newest` until training ends, and then no "
        "checkpoint has it, so that the finished run cannot be trained further.",
    )

    @model_validator(mode="after")
    def _has_an_interval(self) -> Self:
        if self.every_tokens is None and self.every_minutes is None:
            raise ValueError("set every_tokens or every_minutes")
        return self


class EvaluationConfig(Config):
    """When the loss on held-out text is measured. One more evaluation is made at the end."""

    every_tokens: int = Field(ge=1, description="Tokens between evaluations on the held-out text.")
    micro_batch_size: int = Field(
        default=8,
        ge=1,
        description="Windows that are evaluated at a time: at most those of a micro-batch, which fit.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Held-out tokens that an evaluation during training reads at most: windows spread evenly "
        "over each corpus, the same at every evaluation. Set it when evaluations take too much of the "
        "time. When not set, all. The final evaluation and those of single checkpoints read all in any case.",
    )


# Logits divided by less than this can overflow.
LOWEST_TEMPERATURE = 1e-6


class SamplesConfig(Config):
    """Text that the model writes when a checkpoint is evaluated."""

    prompts: list[str] = Field(
        default=[], description="Texts that the model continues. An empty list writes none."
    )
    max_new_tokens: int = Field(default=64, ge=1, description="Tokens to write at most for each prompt.")
    temperature: float = Field(
        default=0.8,
        ge=0,
        description="Divides the logits before a token is drawn. Lower is more predictable; 0 always takes "
        "the likeliest token.",
    )
    top_k: int = Field(default=40, ge=0, description="How many of the likeliest tokens can be drawn. 0: all.")
    top_p: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Only the likeliest tokens that together reach this probability (0 to 1) can be drawn.",
    )

    @field_validator("temperature")
    @classmethod
    def _logits_stay_finite(cls, temperature: float) -> float:
        if 0 < temperature < LOWEST_TEMPERATURE:
            raise ValueError(f"must be 0 or at least {LOWEST_TEMPERATURE:g}, not {temperature:g}")
        return temperature


class SpikesConfig(Config):
    """What happens when a step's loss or gradient norm is more than 6 standard deviations above its mean over
    the 128 steps before.
    """

    action: Literal["log", "skip"] = Field(
        default="log",
        description="`log`: the spike is recorded. `skip`: the step's update is left out as well; its "
        "tokens count as seen and the schedule continues.",
    )


class AveragingConfig(Config):
    """An exponential moving average of the weights after each step; at the beginning of a run, their plain
    mean. Takes memory for one more copy of the weights.
    """

    half_life_tokens: int = Field(ge=1, description="Tokens after which weights count half in the average.")


class TrainingConfig(Config):
    """A recipe's `training` section: the model and its training. Units are tokens; steps and accumulation
    follow from them.
    """

    model: ModelConfig = Field(
        description="Shape of the model. A named size stands for its shape, `model: 171m`, or with changes, "
        "`model: {size: 171m, qk_norm: true}`. `model: {depth: 12}` gives the shape, and what is not set of "
        "`global_batch_tokens`, `max_tokens`, `optimizer` and `schedule`, by nanochat's laws."
    )
    seq_len: int = Field(ge=2, description="Tokens per window, the context that the model is trained on.")
    global_batch_tokens: int = Field(
        ge=1, description="Tokens per step, over all processes: a multiple of `seq_len` x `micro_batch_size`."
    )
    micro_batch_size: int | Literal["auto"] = Field(
        default="auto",
        description="Windows that one process computes at a time; gradients accumulate to a step. Up to "
        "rounding, the result is the same. `auto`: as many as fit into the memory of the GPU, up to 65,536 "
        "tokens (on a CPU 4,096), tried before the first step; a resumed run keeps the number. Set a number "
        "for the same rounding on another GPU, or when memory runs out.",
    )
    max_tokens: int = Field(
        ge=1, le=10**18, description="Tokens to train on, a multiple of `global_batch_tokens`."
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="Seed of everything random in a run: the first weights, the order of the samples, "
        "dropout and the text of samples.",
    )
    objective: Objective = Field(
        default="pretrain",
        exclude_if=lambda objective: objective == "pretrain",
        description="What is learnt. `pretrain`: every token. `sft`: of conversations the answers with their "
        "`[END]`, of other text every token. `dpo`: to prefer the chosen answer of each pair to the rejected "
        "one. For `sft` and `dpo` rows are packed (`packing: best_fit`), conversations do not see each other "
        "(`document_masking: true`), and the tokenizer needs control tokens.",
    )
    learn: Literal["all", "last"] = Field(
        default="all",
        exclude_if=lambda learn: learn == "all",
        description="Which answers of a conversation are learnt: all or the last one. The validation of "
        "`sft` reads all of them in any case.",
    )
    dpo: DpoConfig = Field(
        default=DpoConfig(),
        exclude_if=lambda dpo: dpo == DpoConfig(),
        description="The loss of preferences, for `objective: dpo`.",
    )
    lora: LoraConfig | None = Field(
        default=None,
        exclude_if=lambda lora: lora is None,
        description="Trains small matrices beside the weights of `pretrained`, which takes the memory of few "
        "gradients. When not set, the weights themselves.",
    )
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16", "fp8"] = Field(
        default="auto",
        description="Numbers that matrix products are computed in; weights stay fp32. `auto`: bf16 where "
        "the hardware multiplies it, else fp32. `fp16`: a step whose gradients overflow is skipped; its "
        "tokens count as seen and the schedule waits. `fp8`: bf16, with the products inside blocks in 8 "
        "bits; needs torchao and a GPU such as L4 or H100.",
    )
    compile: bool | Literal["auto"] = Field(
        default="auto",
        description="Whether blocks are compiled with torch.compile: faster steps after a slow start. "
        "`auto`: on a GPU. On a CPU, set `true` for long runs; it needs a C++ compiler.",
    )
    attention: Literal["auto", "math", "sdpa", "flex", "flash"] = Field(
        default="auto",
        description="Implementation of attention. `auto`: on a CPU chosen by precision and `seq_len`; on a "
        "GPU `flash` if a package whose kernels are the fastest there is installed, else `flex` or `sdpa`. "
        "`math`: plain "
        "matrix products. `sdpa`: PyTorch's scaled_dot_product_attention. `flex`: FlexAttention, on a GPU. "
        "`flash`: FlashAttention's kernels for documents of variable length, on a GPU from A100 on, in bf16 "
        "or fp16; docs/trainer.md says which packages make them faster.",
    )
    activation_checkpointing: Literal["none", "selective", "full"] = Field(
        default="none",
        description="What a block's forward pass keeps for its backward pass: everything (`none`), matrix "
        "products (`selective`) or only its input (`full`). Less memory, more computing.",
    )
    packing: Literal["windows", "best_fit"] = Field(
        default="windows",
        description="How documents fill windows. `windows`: cut from the stream of tokens wherever a window "
        "ends. `best_fit`: a window begins with a document and cuts none that fits; its padding counts as "
        "tokens seen, not as predicted.",
    )
    document_masking: bool | Literal["auto"] = Field(
        default="auto",
        description="Whether a token attends only to its own document. `auto`: on a GPU, where it "
        "costs little.",
    )
    pretrained: PretrainedConfig | None = Field(
        default=None, description="Weights to start from. When not set, `init` decides."
    )
    init: InitConfig = Field(
        default=InitConfig(), description="The first weights of a model trained from scratch."
    )
    dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share (0 to 1) of numbers set to zero in the embedding and in what each block adds. "
        "Helps where text is repeated often.",
    )
    z_loss: float = Field(
        default=0.0,
        ge=0,
        description="Weight of log(Z)^2 in the loss (PaLM, section 5), against drifting logits; 1e-4 when "
        "it is used. 0 turns it off.",
    )
    optimizer: OptimizerConfig = Field(
        default=OptimizerConfig(), validate_default=True, description="How gradients become updates."
    )
    schedule: ScheduleConfig = Field(
        default=ScheduleConfig(), validate_default=True, description="The course of the learning rate."
    )
    stages: list[StageConfig] = Field(
        default=[],
        description="Stages that divide the run and may differ in data, window, batch and learning rate, in "
        "order. All have the same number of tokens per micro-batch. An empty list is one stage.",
    )
    control: Literal["duplicates", "shuffled"] | None = Field(
        default=None,
        exclude_if=lambda control: control is None,
        description="Spoils what the run reads, to make a negative control that must lose against the same "
        "run without it. `duplicates`: the second half of what a corpus gives repeats the first half, "
        "and at most half of each corpus is read. `shuffled`: the tokens of each window are in random order.",
    )
    spikes: SpikesConfig = Field(
        default=SpikesConfig(), description="What happens when loss or gradients jump."
    )
    averaging: AveragingConfig | None = Field(
        default=None,
        description="An average of the weights, which is then evaluated, sampled from and exported. When "
        "not set, the trained weights themselves.",
    )
    checkpoint: CheckpointConfig = Field(description="When checkpoints are saved and which are kept.")
    evaluation: EvaluationConfig = Field(description="When the loss on held-out text is measured.")
    samples: SamplesConfig = Field(
        default=SamplesConfig(), description="Text that the model writes at evaluations."
    )
    log_every_steps: int = Field(default=1, ge=1, description="Steps between lines of metrics.")
    sinks: list[Literal["mlflow", "trackio", "wandb"]] = Field(
        default=[],
        description="Trackers that metrics and settings are sent to as well: MLflow, trackio or Weights & "
        "Biases. Each needs the extra of its name. docs/trainer.md says how each is configured. "
        "metrics.jsonl and TensorBoard are always written.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="CPU threads of each process. When not set, the physical cores divided by the processes "
        "of this machine.",
    )
    parallel: ParallelConfig = Field(
        default=ParallelConfig(), description="How several processes share the work."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_depth(cls, values: Any) -> Any:
        model = values.get("model") if isinstance(values, dict) else None
        return depth.filled_in(values) if isinstance(model, dict) and "depth" in model else values

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_rows(cls, values: Any) -> Any:
        return with_rows(values)

    @field_validator("micro_batch_size")
    @classmethod
    def _at_least_one_window(cls, size: int | Literal["auto"]) -> int | Literal["auto"]:
        if size != "auto" and size < 1:
            raise ValueError(f"must be auto or at least 1, not {size}")
        return size

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
        """The default warmup, which depends on the length of the run."""
        tokens = settings.data.get("max_tokens")
        if "warmup_tokens" in schedule.model_fields_set or tokens is None:
            return schedule
        return schedule.with_derived(warmup_tokens=round(tokens * WARMUP))

    @model_validator(mode="after")
    def _steps_and_schedules_fit(self) -> Self:
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
                key = "until_tokens" if self.stages else "it"
                end = stage.first_token + _nearest(stage.tokens, batch)
                raise ValueError(
                    f"{where}{length} not a multiple of global_batch_tokens {batch}; set {key} to {end}"
                )
            if self.packing == "best_fit" and stage.seq_len != self.seq_len:
                raise ValueError(
                    f"{where}packing best_fit needs the same seq_len in the entire run: leave out the "
                    "stage's seq_len, or set packing to windows"
                )
            stage.schedule.check(stage.schedule_tokens, where)
        return self

    @model_validator(mode="after")
    def _averaging_fits_into_the_run(self) -> Self:
        if self.averaging and self.averaging.half_life_tokens > self.max_tokens:
            raise ValueError(
                f"averaging.half_life_tokens {self.averaging.half_life_tokens} is more than max_tokens "
                f"{self.max_tokens}: lower it"
            )
        return self

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
    def micro_batch_windows(self) -> int:
        """Windows of `seq_len` that one process computes at a time: one, as long as `auto` has not been
        resolved.
        """
        return 1 if self.micro_batch_size == "auto" else self.micro_batch_size

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens that one process computes at a time, in every stage."""
        return self.micro_batch_windows * self.seq_len

    @property
    def curriculum(self) -> Curriculum:
        """The stages of the run; a single one when `stages` is empty."""
        run = CurriculumStage(
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
