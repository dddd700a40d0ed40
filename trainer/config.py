"""What a run is told: model, training settings, data. Frozen; an unknown key is an error that names the nearest one. Never imports torch."""

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.errors import TrainerError


class Config(BaseModel):
    """Frozen and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for key in values.keys() - cls.model_fields.keys():
                nearest = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"the keys here are {', '.join(cls.model_fields)}"
                raise ValueError(f"unknown key {key!r}: {hint}")
        return values


class ModelConfig(Config):
    """A Llama-style decoder; with `qk_norm` a Qwen3-style one. The vocabulary comes from the tokenizer."""

    n_layers: int = Field(ge=1)
    d_model: int = Field(ge=1)
    n_heads: int = Field(ge=1)
    n_kv_heads: int = Field(ge=1)
    d_ff: int = Field(ge=1)
    rope_theta: float = Field(default=10000.0, gt=0)
    norm_eps: float = Field(default=1e-5, gt=0)
    tie_embeddings: bool = False
    qk_norm: bool = False

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} must be a multiple of n_heads {self.n_heads}")
        if self.head_dim % 2:
            raise ValueError(f"d_model / n_heads is {self.head_dim}; rotary embeddings need an even number")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads {self.n_heads} must be a multiple of n_kv_heads {self.n_kv_heads}")
        return self

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    def parameters(self, vocab_size: int) -> int:
        """Trainable parameters, the padding of the vocabulary not counted."""
        embeddings = vocab_size * self.d_model
        norms = self.d_model * (2 * self.n_layers + 1) + (2 * self.head_dim * self.n_layers if self.qk_norm else 0)
        return self._block_matrices() * self.n_layers + norms + embeddings * (1 if self.tie_embeddings else 2)

    def flops_per_token(self, vocab_size: int, seq_len: int) -> int:
        """Forward and backward, 6 per weight of a matrix product plus 12 * layers * d_model * seq_len for attention (PaLM, appendix B)."""
        matrices = self._block_matrices() * self.n_layers + vocab_size * self.d_model
        return 6 * matrices + 12 * self.n_layers * self.d_model * seq_len

    def _block_matrices(self) -> int:
        keys_and_values = 2 * self.d_model * self.n_kv_heads * self.head_dim
        return 2 * self.d_model**2 + keys_and_values + 3 * self.d_model * self.d_ff


class InitConfig(Config):
    """Normal(0, std) for matrices and embeddings; `zero_output` starts each block as the identity (o_proj and down_proj zero)."""

    std: float = Field(default=0.02, gt=0)
    zero_output: bool = True


class OptimizerConfig(Config):
    """AdamW for everything, or Muon for the matrices inside blocks and AdamW for the rest.

    `lr`, `embedding_lr` and `head_lr` are AdamW's (None: the same as `lr`); weight decay applies to matrices, never to norms and embeddings.
    """

    kind: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(default=3e-3, gt=0)
    embedding_lr: float | None = Field(default=None, gt=0)
    head_lr: float | None = Field(default=None, gt=0)
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    muon_lr: float = Field(default=0.01, gt=0)
    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    muon_steps: int = Field(default=5, ge=1)


class ScheduleConfig(Config):
    """Linear warmup over `warmup_tokens`, then a cosine, or a plateau that ends in a line over the last `decay_fraction` of the run."""

    kind: Literal["warmup_cosine", "warmup_stable_linear"] = "warmup_cosine"
    warmup_tokens: int = Field(default=0, ge=0)
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    decay_fraction: float = Field(default=0.6, gt=0, le=1)


class CheckpointConfig(Config):
    """One checkpoint each `every_tokens` and at the end; the newest `keep_last` stay."""

    every_tokens: int = Field(ge=1)
    keep_last: int = Field(default=3, ge=1)


class EvaluationConfig(Config):
    """Validation each `every_tokens` and at the end, in micro-batches of `micro_batch_size` windows."""

    every_tokens: int = Field(ge=1)
    micro_batch_size: int = Field(default=8, ge=1)


class SamplesConfig(Config):
    """Text that the model writes at each evaluation. `top_k` 0 keeps the whole distribution, `temperature` 0 takes the likeliest token."""

    prompts: list[str] = []
    max_new_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=0.8, ge=0)
    top_k: int = Field(default=40, ge=0)


class TrainingConfig(Config):
    """A recipe's `training` section. Units are tokens; steps and accumulation follow from them."""

    model: ModelConfig
    seq_len: int = Field(ge=2)
    global_batch_tokens: int = Field(ge=1)
    micro_batch_size: int = Field(ge=1)
    max_tokens: int = Field(ge=1)
    seed: int = Field(default=0, ge=0)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: bool | Literal["auto"] = False
    attention: Literal["auto", "math", "sdpa"] = "auto"
    document_masking: bool = False
    init: InitConfig = InitConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    checkpoint: CheckpointConfig
    evaluation: EvaluationConfig
    samples: SamplesConfig = SamplesConfig()
    log_every_steps: int = Field(default=1, ge=1)
    threads: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        micro = self.seq_len * self.micro_batch_size
        if self.global_batch_tokens % micro:
            nearest = max(1, round(self.global_batch_tokens / micro)) * micro
            raise ValueError(
                f"global_batch_tokens {self.global_batch_tokens} is not a multiple of seq_len x micro_batch_size "
                f"({self.seq_len} x {self.micro_batch_size} = {micro}); set it to {nearest} or change micro_batch_size"
            )
        if self.max_tokens % self.global_batch_tokens:
            nearest = max(1, round(self.max_tokens / self.global_batch_tokens)) * self.global_batch_tokens
            raise ValueError(
                f"max_tokens {self.max_tokens} is not a whole number of steps of global_batch_tokens {self.global_batch_tokens}; set it to {nearest}"
            )
        return self

    @property
    def steps(self) -> int:
        return self.max_tokens // self.global_batch_tokens

    @property
    def global_batch_size(self) -> int:
        """Windows in one step, over all processes."""
        return self.global_batch_tokens // self.seq_len


class CorpusShards(Config):
    """The token shards of one corpus, by prefix. `weight` is its share of the samples; `validation_bytes` the UTF-8 bytes of its held-out text."""

    name: str = Field(min_length=1)
    weight: float = Field(gt=0)
    train: list[Path] = Field(min_length=1)
    validation: list[Path] = []
    validation_bytes: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _validation_has_bytes(self) -> Self:
        if self.validation and not self.validation_bytes:
            raise ValueError(f"corpus {self.name!r} has validation shards: set validation_bytes, the UTF-8 bytes of their text")
        return self


class DataConfig(Config):
    """The tokenizer (a directory with tokenizer.json and tokenizer_config.json), its identity, and the corpora encoded with it."""

    tokenizer: Path
    tokenizer_sha256: str
    vocab_size: int = Field(ge=1)
    bot_id: int = Field(ge=0)
    eot_id: int = Field(ge=0)
    corpora: list[CorpusShards] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique_and_ids_known(self) -> Self:
        names = [corpus.name for corpus in self.corpora]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two corpora are called {name!r}")
        for key, token in (("bot_id", self.bot_id), ("eot_id", self.eot_id)):
            if token >= self.vocab_size:
                raise ValueError(f"{key} {token} is outside the vocabulary of {self.vocab_size}")
        return self


class RunConfig(Config):
    """One run. `lineage` is opaque: copied into each checkpoint."""

    run_dir: Path
    data: DataConfig
    training: TrainingConfig
    lineage: dict[str, Any] = {}


# Where and how a run is carried out: up to rounding, none of these changes what is learnt.
OPERATIONAL = {"micro_batch_size", "compile", "attention", "checkpoint", "evaluation", "samples", "log_every_steps", "threads"}


def meaning(config: RunConfig, shard_hashes: dict[str, str]) -> dict[str, Any]:
    """What decides the weights, as plain JSON: settings without places, and the content of the shards (`shard_hashes`, by corpus name)."""
    data = config.data
    return {
        "training": config.training.model_dump(mode="json", exclude=OPERATIONAL),
        "data": {
            "tokenizer_sha256": data.tokenizer_sha256,
            "vocab_size": data.vocab_size,
            "bot_id": data.bot_id,
            "eot_id": data.eot_id,
            "corpora": {corpus.name: {"weight": corpus.weight, "shards": shard_hashes[corpus.name]} for corpus in data.corpora},
        },
    }


def config_hash(meaning: dict[str, Any]) -> str:
    """sha256 over canonical JSON."""
    return hashlib.sha256(json.dumps(meaning, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def load_run_config(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Reads a YAML file and applies `a.b=value` overrides (values are YAML). TrainerError names the file, the key and what to change."""
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TrainerError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise TrainerError(f"{path}: must hold the keys {', '.join(RunConfig.model_fields)}")
    for override in overrides or []:
        _override(values, override)
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'top level'}: {problem['msg'].removeprefix('Value error, ')}" for problem in error.errors()
        ]
        raise TrainerError(f"{path}: " + "; ".join(problems)) from error


def _override(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise TrainerError(f"override {override!r} is not of the form key.subkey=value")
    *parents, last = key.split(".")
    at: Any = values
    try:
        for parent in parents:
            at = at[int(parent)] if isinstance(at, list) else at.setdefault(parent, {})
        at[int(last) if isinstance(at, list) else last] = yaml.safe_load(text)
    except (AttributeError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise TrainerError(f"override {override!r} cannot be applied: {error}") from error
