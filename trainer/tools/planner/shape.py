"""A model shape for a number of parameters."""

import math

from trainer.config import ModelConfig
from trainer.system.errors import TrainerError

ASPECT = 100  # d_model / n_layers, between GPT-3's small and large models and those of Llama
# Multiples of the head size (64, from 2,048 on 128); from 2,048 on the number of heads is a multiple of four.
WIDTHS = (*range(64, 1024, 64), *range(1024, 2048, 128), *range(2048, 20_481, 512))
TOLERANCE = 0.05


def shaped(parameters: float, vocab_size: int) -> ModelConfig:
    """The Llama-style shape within 5% of `parameters` whose width is nearest to 100 times its depth.

    Raises TrainerError when there is none.
    """
    candidates = [
        model for width in WIDTHS if (model := _of_width(width, parameters, vocab_size)) is not None
    ]
    close = [model for model in candidates if _deviation(model, parameters, vocab_size) <= TOLERANCE]
    if not close:
        raise TrainerError(
            f"no model has about {parameters:,.0f} parameters with a vocabulary of {vocab_size:,}: at the "
            f"smallest width, {WIDTHS[0]}, the embeddings alone have {2 * WIDTHS[0] * vocab_size:,}; "
            "plan for more parameters or set a smaller --vocab-size"
        )
    return min(
        close,
        key=lambda model: (
            abs(math.log(model.d_model / model.n_layers / ASPECT))
            + 5 * _deviation(model, parameters, vocab_size)
        ),
    )


def _of_width(width: int, parameters: float, vocab_size: int) -> ModelConfig | None:
    head_dim = 128 if width >= 2048 else 64
    heads = width // head_dim
    feed_forward = round(8 / 3 * width / 64) * 64
    shallow = ModelConfig(n_layers=1, d_model=width, n_heads=heads, n_kv_heads=heads, d_ff=feed_forward)
    base = shallow.parameters(vocab_size)
    block = shallow.model_copy(update={"n_layers": 2}).parameters(vocab_size) - base
    layers = 1 + round((parameters - base) / block)
    return shallow.model_copy(update={"n_layers": layers}) if layers >= 1 else None


def _deviation(model: ModelConfig, parameters: float, vocab_size: int) -> float:
    return abs(math.log(model.parameters(vocab_size) / parameters))
