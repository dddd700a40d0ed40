"""Rotary embeddings, plain or stretched to longer contexts, equal to Hugging Face's modeling_rope_utils."""

import math

import torch

from trainer.config.model import LinearScaling, Llama3Scaling, ModelConfig, YarnScaling
from trainer.model import cpu_backward


def rotary_tables(config: ModelConfig, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [length, head_dim], fp32, in Hugging Face's rotate-half layout (two equal halves)."""
    periods = config.rope_theta ** (
        torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    )
    frequencies = 1.0 / periods
    magnitude = 1.0
    match config.rope_scaling:
        case LinearScaling(factor=factor):
            frequencies = frequencies / factor
        case Llama3Scaling() as scaling:
            frequencies = _llama3(frequencies, scaling)
        case YarnScaling() as scaling:
            frequencies = _yarn(periods, scaling, config.rope_theta)
            magnitude = scaling.attention_factor or 0.1 * math.log(scaling.factor) + 1.0
    angles = torch.outer(torch.arange(length).float(), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos() * magnitude, angles.sin() * magnitude


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates `x` [batch, length, heads, head_dim] by the angles of its positions, in the type of `x`. `cos`
    and `sin` are [length, head_dim]. Returns [batch, heads, length, head_dim].
    """
    # Transposed last, a GPU's compiled backward pass writes gradients as the products read them, without
    # copies. A CPU's, which is promised to the bit, would round otherwise.
    transposed_last = x.is_cuda
    if not transposed_last:
        x = x.transpose(1, 2)
    heads = -2 if transposed_last else -3
    cos, sin = cos.to(x.dtype).unsqueeze(heads), sin.to(x.dtype).unsqueeze(heads)
    if cpu_backward.applies_to(x, cos, sin):
        return cpu_backward.Rotated.apply(x, cos, sin)
    first, second = x.chunk(2, dim=-1)
    turned = x * cos + torch.cat([-second, first], dim=-1) * sin
    return turned.transpose(1, 2) if transposed_last else turned


def turned_back(keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: int) -> torch.Tensor:
    """The rotated `keys` [..., head_dim] as they would be `positions` positions earlier, computed in fp32.
    `cos` and `sin` are the tables of `rotary_tables`.
    """
    magnitude = cos[0]  # that of every angle, since the first is 0
    first, second = keys.float().chunk(2, dim=-1)
    turned = (
        torch.cat([first, second], dim=-1) * cos[positions]
        + torch.cat([second, -first], dim=-1) * sin[positions]
    )
    return (turned / magnitude).to(keys.dtype)


def _llama3(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    # In Hugging Face's order of operations: one rounding changes the cosine at position 20,000 by 0.001.
    turns = scaling.original_max_position_embeddings / (2 * math.pi / frequencies)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / scaling.factor


def _yarn(periods: torch.Tensor, scaling: YarnScaling, theta: float) -> torch.Tensor:
    dimensions = 2 * len(periods)

    def dimension_with(turns: float) -> float:
        """The dimension that makes `turns` turns within the original context."""
        return (
            dimensions
            * math.log(scaling.original_max_position_embeddings / (turns * 2 * math.pi))
            / (2 * math.log(theta))
        )

    low, high = dimension_with(scaling.beta_fast), dimension_with(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dimensions - 1)
    kept = 1 - ((torch.arange(len(periods)) - low) / ((high - low) or 0.001)).clamp(0, 1)
    return 1.0 / (scaling.factor * periods) * (1 - kept) + 1.0 / periods * kept
