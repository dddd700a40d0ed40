"""What a step computes: the model, and the windows that it reads."""

from typing import Literal

from pydantic import Field, field_validator

from trainer.config.base import Config
from trainer.config.model import ModelConfig


class Sizes(Config):
    """The model, and how many tokens it reads at a time and in all."""

    model: ModelConfig
    """Shape of the model. A named size stands for its shape, `model: 171m`, or with changes, `model: {size:
    171m, qk_norm: true}`. `model: {depth: 12}` gives the shape, and what is not set of `global_batch_tokens`,
    `max_tokens`, `optimizer` and `schedule`, by nanochat's laws.
    """
    seq_len: int = Field(ge=2)
    """Tokens per window, the context that the model is trained on."""
    global_batch_tokens: int = Field(ge=1)
    """Tokens per step, over all processes: a multiple of `seq_len` x `micro_batch_size`."""
    micro_batch_size: int | Literal["auto"] = "auto"
    """Windows that one process computes at a time; gradients accumulate to a step. Up to rounding, the result
    is the same. `auto`: as many as fit into the memory of the GPU, up to 65,536 tokens (on a CPU 4,096),
    tried before the first step; a resumed run keeps the number. Set a number for the same rounding on another
    GPU, or when memory runs out.
    """
    max_tokens: int = Field(ge=1, le=10**18)
    """Tokens to train on, a multiple of `global_batch_tokens`."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of everything random in a run: the first weights, the order of the samples, dropout and the text
    of samples.
    """

    @field_validator("micro_batch_size")
    @classmethod
    def _at_least_one_window(cls, size: int | Literal["auto"]) -> int | Literal["auto"]:
        if size != "auto" and size < 1:
            raise ValueError(f"must be auto or at least 1, not {size}")
        return size


class Rows(Config):
    """How documents fill the windows that are read."""

    packing: Literal["windows", "best_fit", "documents"] = "windows"
    """How documents fill windows. `windows`: cut from the stream of tokens wherever a window ends.
    `best_fit`: a window begins with a document and cuts none that fits; its padding counts as tokens seen,
    not as predicted. `documents`: documents are shuffled, in pieces of at most four windows, and their stream
    is cut wherever a window ends. Set it when documents may have to be forgotten or text is added later:
    training then goes on from before the first step that changes (docs/forget.md).
    """
    document_masking: bool | Literal["auto"] = "auto"
    """Whether a token attends only to its own document. `auto`: on a GPU, where it costs little."""
