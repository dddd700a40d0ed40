"""Activation checkpointing of one block: which results the backward pass keeps, and which it recomputes."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

ActivationCheckpointing = Literal["none", "selective", "full"]

# The operations that cost most to recompute. Norms, rotations and activations take most of the memory and
# cost little.
_KEPT = {
    "aten::mm",
    "aten::addmm",
    "aten::_scaled_mm",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "flex_attention",
    "torch_attn::_varlen_attn",
    "flash_attn::_flash_attn_varlen_forward",
}


def activation_checkpointed(
    forward: Callable[..., torch.Tensor], kind: ActivationCheckpointing, *inputs: Any
) -> torch.Tensor:
    """`forward(*inputs)`. Its backward pass keeps everything (none), matrix products (selective) or only the
    inputs (full).
    """
    if kind == "none" or not torch.is_grad_enabled():
        return forward(*inputs)
    # Nothing in a block is random. Two calls, because the compiler needs context_fn to be a constant.
    output: torch.Tensor
    if kind == "selective":
        output = checkpoint(
            forward, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=_keep_products
        )
    else:
        output = checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False)
    return output


def _keep_products() -> Any:
    return create_selective_checkpoint_contexts(_policy)


def _policy(context: Any, operation: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation.name() in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
