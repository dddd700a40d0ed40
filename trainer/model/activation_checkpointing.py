"""Activation checkpointing of one block: what its forward pass keeps for the backward pass, and what is
computed again.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Recompute = Literal["none", "selective", "full"]

# The products that cost most to make again; norms, rotations and activations, most of the memory, cost
# little.
_KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.higher_order.flex_attention,
}


def activation_checkpointed(
    forward: Callable[..., torch.Tensor], kind: Recompute, *inputs: Any
) -> torch.Tensor:
    """`forward(*inputs)`, keeping for the backward pass everything (none), the matrix products (selective),
    or only the inputs (full).
    """
    if kind == "none" or not torch.is_grad_enabled():
        return forward(*inputs)
    # Nothing in a block is random. The compiler wants each context_fn as a constant.
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
    return CheckpointPolicy.MUST_SAVE if operation in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
