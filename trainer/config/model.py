"""The shape of the model and how its weights begin."""

from typing import Self

from pydantic import Field, model_validator

from trainer.config.base import Config


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
