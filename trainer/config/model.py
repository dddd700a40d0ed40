"""The shape of the model and its first weights."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from trainer.config import depth
from trainer.config.base import Config

# 171m counts a vocabulary of 50,000; 1b has the blocks of Llama 3.2 1B, 7b those of Llama 2 7B.
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"n_layers": 4, "d_model": 256, "n_heads": 4, "n_kv_heads": 4, "d_ff": 688},
    "small": {"n_layers": 6, "d_model": 384, "n_heads": 6, "n_kv_heads": 6, "d_ff": 1024},
    "171m": {"n_layers": 12, "d_model": 768, "n_heads": 12, "n_kv_heads": 12, "d_ff": 2368},
    "1b": {"n_layers": 16, "d_model": 2048, "n_heads": 32, "n_kv_heads": 8, "d_ff": 8192},
    "7b": {"n_layers": 32, "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "d_ff": 11008},
}


# What whoever asks for attention sinks is told when the recipe is read.
READ_HERE_ONLY = (
    "training.model.attention_sinks: no dense model of transformers or llama.cpp has them, so only "
    "`python -m trainer` will read the exported model"
)

# Rotary embeddings stretched to longer contexts, with the keys of Hugging Face's config.json.
# Far above what any model uses; beyond it, angles are no longer numbers.
LARGEST = 1e6
Stretch = Annotated[float, Field(ge=1, le=LARGEST)]
Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST)]


class LinearScaling(Config):
    """Divides every position by `factor` (Chen et al. 2023)."""

    rope_type: Literal["linear"]
    """Selects this method."""
    factor: Stretch
    """How many times longer the context gets."""


class Llama3Scaling(Config):
    """Divides low frequencies by `factor` and keeps high ones, with a ramp between (Llama 3.1)."""

    rope_type: Literal["llama3"]
    """Selects this method."""
    factor: Stretch
    """What low frequencies are divided by. 8 in Llama 3.1."""
    original_max_position_embeddings: int = Field(ge=1, lt=2**63)
    """Tokens of context that the model had before."""
    low_freq_factor: float = Field(default=1.0, gt=0, le=1e6)
    """Frequencies with fewer turns over the original context count as low."""
    high_freq_factor: float = Field(default=4.0, gt=0, le=1e6)
    """Frequencies with more turns over it count as high."""

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor {self.low_freq_factor:g} must be below high_freq_factor "
                f"{self.high_freq_factor:g}: 1 and 4 are usual"
            )
        return self


class YarnScaling(Config):
    """Stretches only low frequencies, and sharpens attention: YaRN (Peng et al. 2023, arXiv 2309.00071)."""

    rope_type: Literal["yarn"]
    """Selects this method."""
    factor: Stretch
    """How many times longer the context gets."""
    original_max_position_embeddings: int = Field(ge=1, lt=2**63)
    """Tokens of context that the model had before."""
    beta_fast: Positive = 32.0
    """Frequencies with more turns than this over the original context stay as they are. 32 in the paper."""
    beta_slow: Positive = 1.0
    """Frequencies with fewer turns than this over the original context are divided by `factor`. 1 in the
    paper.
    """
    attention_factor: Positive | None = None
    """What the rotated queries and keys are multiplied by. When not set, 0.1 ln(factor) + 1, as in the paper.
    """
    truncate: bool = True
    """Whether the two borders between these frequencies are whole dimensions. False in gpt-oss."""


RopeScaling = Annotated[LinearScaling | Llama3Scaling | YarnScaling, Field(discriminator="rope_type")]


class ModelConfig(Config):
    """The shape of a Llama-style decoder; with `qk_norm` a Qwen3-style one. The vocabulary comes from the
    tokenizer.
    """

    n_layers: int = Field(ge=1)
    """Number of transformer blocks."""
    d_model: int = Field(ge=1)
    """Width of the model: numbers per token. A multiple of `n_heads`, unless `head_dim` is set."""
    n_heads: int = Field(ge=1)
    """Attention heads per block."""
    n_kv_heads: int = Field(ge=1)
    """Key and value heads per block; must divide `n_heads`. Fewer than `n_heads` is grouped-query attention,
    which makes generation cheaper.
    """
    d_ff: int = Field(ge=1)
    """Width inside the feed-forward layers, usually about 8/3 of `d_model`."""
    head_dim: int = Field(default_factory=lambda shape: shape["d_model"] // shape["n_heads"], ge=2)
    """Numbers per attention head, an even number. When not set, `d_model` / `n_heads`."""
    rope_theta: float = Field(default=10000.0, gt=1, le=1e12)
    """Base of the rotary position embeddings. Larger for long contexts: 500,000 in Llama 3."""
    rope_scaling: RopeScaling | None = None
    """How the rotary embeddings are stretched to contexts longer than those of an earlier training. When not
    set, not at all.
    """
    norm_eps: float = Field(default=1e-5, gt=0)
    """Added to the mean square in RMSNorm against division by zero."""
    tie_embeddings: bool = False
    """Whether the output layer shares the weights of the embedding. Saves parameters in small models."""
    qk_norm: bool = True
    """Whether queries and keys are normalized in each head (Qwen3), which keeps training stable at high
    learning rates. The weights of a Llama have no such norms: set it to false to start from them.
    """
    attention_sinks: bool = False
    """Whether each head has a learned logit that takes part in its softmax and is then dropped, so that a
    head can attend to nothing (gpt-oss). `transformers` and llama.cpp have no such dense model: only `python
    -m trainer` reads it, its export too. Excludes `attention: flash`.
    """

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_size(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"size": values}
        if isinstance(values, dict) and {"size", "depth"} <= values.keys():
            raise ValueError("size and depth are two ways to give a shape: leave out one")
        if isinstance(values, dict) and "size" in values:
            size = values["size"]
            if size not in SIZES:
                raise ValueError(f"unknown size {size!r}: use {', '.join(SIZES)}, or give the shape")
            return {**SIZES[size], **{key: value for key, value in values.items() if key != "size"}}
        if isinstance(values, dict) and "depth" in values:
            rest = {key: value for key, value in values.items() if key != "depth"}
            return {**depth.shape(depth.checked(values["depth"])), **rest}
        return values

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if "head_dim" not in self.model_fields_set and self.d_model % self.n_heads:
            raise ValueError(
                f"d_model {self.d_model} must be a multiple of n_heads {self.n_heads}: change one, or set "
                "head_dim"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"head_dim {self.head_dim} must be even for rotary embeddings: set head_dim, or change "
                "d_model or n_heads"
            )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads {self.n_heads} must be a multiple of n_kv_heads {self.n_kv_heads}: change one"
            )
        return self

    def parameters(self, vocab_size: int) -> int:
        """Trainable parameters, without the padding of the vocabulary."""
        embeddings = vocab_size * self.d_model * (1 if self.tie_embeddings else 2)
        block = self._block_matrices() + 2 * self.d_model
        block += 2 * self.head_dim if self.qk_norm else 0
        block += self.n_heads if self.attention_sinks else 0
        return embeddings + block * self.n_layers + self.d_model

    def flops_per_token(self, vocab_size: int, seq_len: int, causal: bool = False) -> int:
        """FLOPs of forward and backward pass: 6 for each weight of a matrix product, and 12 * n_layers *
        n_heads * head_dim * seq_len for attention, as PaLM (appendix B), nanoGPT and torchtitan count them.
        `causal`: half of that for attention, which is what the causal order leaves; Megatron-LM counts so.
        """
        matrices = self._block_matrices() * self.n_layers + vocab_size * self.d_model
        attention = 12 * self.n_layers * self.n_heads * self.head_dim * seq_len
        return 6 * matrices + (attention // 2 if causal else attention)

    def _block_matrices(self) -> int:
        heads = self.n_heads + self.n_kv_heads
        return 2 * self.d_model * heads * self.head_dim + 3 * self.d_model * self.d_ff


class InitConfig(Config):
    """The first weights of a model that is trained from scratch."""

    std: float = Field(default=0.02, gt=0)
    """Standard deviation of the normal distribution, with mean 0, that matrices and embeddings are drawn
    from.
    """
    zero_output: bool = True
    """Whether each block starts as the identity, with o_proj and down_proj zero."""


class PretrainedConfig(Config):
    """Weights to start from, in Hugging Face's format: either `path`, or `repo` and `revision`. Only
    safetensors are read.
    """

    path: Path | None = None
    """Directory that holds the weights. In a recipe, a relative path starts at the recipe's directory."""
    repo: str | None = None
    """Name of the model on the Hugging Face hub, as `owner/name`."""
    revision: str | None = None
    """Branch, tag or commit of `repo`. Required with `repo`. A branch is looked up when a run begins: if the
    branch has moved, the weights differ, and the training is a new run.
    """

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.repo is None):
            raise ValueError(
                "set either path (a directory) or repo (a model on the Hugging Face hub), not both"
            )
        if (self.repo is None) != (self.revision is None):
            raise ValueError("set repo and revision together: revision is a branch, tag or commit of repo")
        return self
