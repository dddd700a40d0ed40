"""The shape of the model and how its weights begin."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from trainer.config.base import Config
from trainer.config.rope import RopeScaling

# 171m is counted with a vocabulary of 50,000; 1b has the blocks of Llama 3.2 1B, 7b those of Llama 2 7B.
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"n_layers": 4, "d_model": 256, "n_heads": 4, "n_kv_heads": 4, "d_ff": 688},
    "small": {"n_layers": 6, "d_model": 384, "n_heads": 6, "n_kv_heads": 6, "d_ff": 1024},
    "171m": {"n_layers": 12, "d_model": 768, "n_heads": 12, "n_kv_heads": 12, "d_ff": 2368},
    "1b": {"n_layers": 16, "d_model": 2048, "n_heads": 32, "n_kv_heads": 8, "d_ff": 8192},
    "7b": {"n_layers": 32, "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "d_ff": 11008},
}


class ModelConfig(Config):
    """A Llama-style decoder; with `qk_norm` a Qwen3-style one. The vocabulary comes from the tokenizer.

    `logit_soft_cap` c makes logits c tanh(logits / c) (Gemma 2, where it is 30). `attention_sinks` gives each
    head a learned logit that takes part in its softmax and is then dropped, so that it can attend to nothing
    (gpt-oss). No stock architecture computes either beside the rest: such a model is read by this trainer
    only.

    A name of `SIZES` stands for its shape: `171m`, or `{size: 171m, qk_norm: true}` to set more or to differ
    in something.
    """

    n_layers: int = Field(ge=1)
    d_model: int = Field(ge=1)
    n_heads: int = Field(ge=1)
    n_kv_heads: int = Field(ge=1)
    d_ff: int = Field(ge=1)
    head_dim: int = Field(default_factory=lambda shape: shape["d_model"] // shape["n_heads"], ge=2)
    rope_theta: float = Field(default=10000.0, gt=0)
    rope_scaling: RopeScaling | None = None
    norm_eps: float = Field(default=1e-5, gt=0)
    tie_embeddings: bool = False
    qk_norm: bool = False
    logit_soft_cap: float | None = Field(default=None, gt=0)
    attention_sinks: bool = False

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_size(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"size": values}
        if isinstance(values, dict) and "size" in values:
            size = values["size"]
            if size not in SIZES:
                raise ValueError(f"no size is called {size!r}; there are {', '.join(SIZES)}")
            return {**SIZES[size], **{key: value for key, value in values.items() if key != "size"}}
        return values

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if "head_dim" not in self.model_fields_set and self.d_model % self.n_heads:
            raise ValueError(
                f"d_model {self.d_model} must be a multiple of n_heads {self.n_heads}, unless head_dim is set"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary embeddings need an even number")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads {self.n_heads} must be a multiple of n_kv_heads {self.n_kv_heads}")
        return self

    @property
    def not_stock(self) -> list[str]:
        """The settings that transformers' Llama and Qwen3 do not compute."""
        return [name for name in ("logit_soft_cap", "attention_sinks") if getattr(self, name)]

    def parameters(self, vocab_size: int) -> int:
        """Trainable parameters, the padding of the vocabulary not counted."""
        embeddings = vocab_size * self.d_model
        norms = self.d_model * (2 * self.n_layers + 1) + (
            2 * self.head_dim * self.n_layers if self.qk_norm else 0
        )
        sinks = self.n_heads * self.n_layers if self.attention_sinks else 0
        return (
            self._block_matrices() * self.n_layers
            + norms
            + sinks
            + embeddings * (1 if self.tie_embeddings else 2)
        )

    def flops_per_token(self, vocab_size: int, seq_len: int) -> int:
        """Forward and backward, 6 per weight of a matrix product plus 12 * layers * heads * head_dim *
        seq_len for attention (PaLM, appendix B).
        """
        matrices = self._block_matrices() * self.n_layers + vocab_size * self.d_model
        return 6 * matrices + 12 * self.n_layers * self.n_heads * self.head_dim * seq_len

    def _block_matrices(self) -> int:
        return (
            2 * self.d_model * (self.n_heads + self.n_kv_heads) * self.head_dim + 3 * self.d_model * self.d_ff
        )


class InitConfig(Config):
    """Normal(0, std) for matrices and embeddings; `zero_output` starts each block as the identity (o_proj and
    down_proj zero).
    """

    std: float = Field(default=0.02, gt=0)
    zero_output: bool = True


class PretrainedConfig(Config):
    """Weights to go on from: a directory in Hugging Face's format, or a hub name and a revision. Only
    safetensors are read.
    """

    path: Path | None = None
    repo: str | None = None
    revision: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.repo is None):
            raise ValueError("set either path (a directory) or repo (a name on the hub)")
        if (self.repo is None) != (self.revision is None):
            raise ValueError(
                "repo and revision belong together: name the branch, tag or commit of the repository"
            )
        return self
