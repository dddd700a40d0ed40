"""Small models with random weights that tell tokens apart."""

from typing import Any

from trainer.config import InitConfig, ModelConfig
from trainer.model.llama import Llama

SHAPE = {"n_layers": 2, "d_model": 32, "n_heads": 4, "n_kv_heads": 2, "d_ff": 48}


def small(
    vocab_size: int = 300, context: int = 64, backend: Any = "math", std: float = 0.3, **shape: Any
) -> Llama:
    model = Llama(ModelConfig(**{**SHAPE, **shape}), vocab_size, context, backend)
    model.initialize(InitConfig(std=std, zero_output=False), seed=1)
    return model.eval()
