"""Attention itself: plain matrix products, and the calls of the other backends."""

import functools
import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from trainer.model.attention import flash
from trainer.model.attention.documents import Backend, DocumentStarts, Mask, causal, within
from trainer.model.attention.sinks import FusedWithSinks, SoftmaxProductsWithSinks, are_fused

# Queries multiplied at a time, with the keys up to the last query: later keys, which the causal order hides
# from all of these queries, are left out.
MATH_QUERIES = 128
# In fp32, flex's own blocks of heads wider than this take 148 KB of shared memory, of which an RTX 4090 or L4
# has 99. These take less than 99.
WIDEST_HEAD_IN_FP32 = 64
SMALL_BLOCKS = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 32, "fwd_num_stages": 1}


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    backend: Backend,
    *,
    mask: Mask | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention: query [batch, heads, length, head_dim], key and value [batch, kv_heads, total,
    head_dim], total >= length.

    The queries are the last `length` of `total` positions, so with a cache the last query sees every key.
    With a `mask` of `document_mask`, a token attends only to its own document. Query heads share key heads in
    consecutive groups. `sinks` [heads] are logits that take part in each softmax and have no value, in any
    backend but flash. Returns [batch, heads, length, head_dim].
    """
    length, total = query.shape[2], key.shape[2]
    sinks = None if sinks is None else sinks.float()
    if isinstance(mask, BlockMask):
        return _flex(query, key, value, mask, sinks)
    runs_flash = backend == "flash" and query.is_cuda and query.dtype != torch.float32 and length == total
    if runs_flash and (mask is None or isinstance(mask, DocumentStarts)):
        return flash.attend(query, key, value, mask)
    if isinstance(mask, DocumentStarts):
        mask = within(mask, query.shape[0], length)
    if sinks is not None and not are_fused(query, mask, total):
        backend = "math"
    if mask is None and (backend == "math" or length != total):
        mask = causal(length, total, query.device)
    if backend == "math":
        assert mask is not None
        return _math(query, key, value, mask, sinks)
    if sinks is not None:
        return _fused(query, key, value, mask, sinks)
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped
    )


def _bias(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, -math.inf)


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor | None,
    sinks: torch.Tensor,
) -> torch.Tensor:
    if query.is_cuda:
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    bias = None if visible is None else _bias(visible, query.dtype)
    mixed: torch.Tensor = FusedWithSinks.apply(query, key, value, bias, sinks)
    return mixed


def _math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    length, cached = query.shape[2], key.shape[2] - query.shape[2]
    bias = _bias(visible, query.dtype)
    mixed = []
    for start in range(0, length, MATH_QUERIES):
        stop = min(start + MATH_QUERIES, length)
        keys, values = key[:, :, : cached + stop], value[:, :, : cached + stop]
        part = bias[..., start:stop, : cached + stop]
        mixed.append(_products(query[:, :, start:stop], keys, values, part, sinks))
    return torch.cat(mixed, dim=2)


def _products(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    batch, heads, length, head_dim = query.shape
    kv_heads, total = key.shape[1:3]
    # Heads that share a key head are stacked: one matrix product serves them and applies scale and mask.
    stacked = (batch * kv_heads, heads // kv_heads * length)
    key, value = key.reshape(stacked[0], total, head_dim), value.reshape(stacked[0], total, head_dim)
    bias = bias.expand(batch, heads, length, total).reshape(*stacked, total)
    query = query.reshape(*stacked, head_dim)
    mixed: torch.Tensor
    if sinks is None:
        mixed = _SoftmaxProducts.apply(query, key, value, bias)
    else:
        stacked_sinks = sinks[:, None].expand(batch, heads, length).reshape(*stacked, 1)
        mixed = SoftmaxProductsWithSinks.apply(query, key, value, bias, stacked_sinks)
    return mixed.view(batch, heads, length, head_dim)


class _SoftmaxProducts(torch.autograd.Function):
    """softmax(query @ key^T / sqrt(head_dim) + bias) @ value for query [n, length, head_dim], key and value
    [n, total, head_dim] and bias [n, length, total]; only the bias gets no gradient.

    Its own backward pass, because autograd multiplies the gradient of the keys transposed, and the pass that
    turns it back takes 5% of a compiled step on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        scale = 1 / math.sqrt(query.shape[-1])
        weights = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=scale).softmax(dim=-1)
        ctx.save_for_backward(query, key, value, weights)
        return weights @ value

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        query, key, value, weights = ctx.saved_tensors
        scale = 1 / math.sqrt(query.shape[-1])
        value_gradient = weights.transpose(1, 2) @ gradients[0]
        shares = gradients[0] @ value.transpose(1, 2)
        scores_gradient = torch._softmax_backward_data(shares, weights, -1, weights.dtype)
        key_gradient = (scores_gradient.transpose(1, 2) @ query) * scale
        return (scores_gradient @ key) * scale, key_gradient, value_gradient, None


def _flex(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: BlockMask, sinks: torch.Tensor | None
) -> torch.Tensor:
    # Uncompiled, flex stores all scores. Inside a compiled block it is compiled with the block.
    flex: Any = _compiled_flex() if query.is_cuda and not torch.compiler.is_compiling() else flex_attention
    options: dict[str, Any] = {"block_mask": mask, "enable_gqa": query.shape[1] != key.shape[1]}
    if query.dtype == torch.float32 and query.shape[3] > WIDEST_HEAD_IN_FP32:
        options["kernel_options"] = SMALL_BLOCKS
    mixed: torch.Tensor
    if sinks is None:
        mixed = flex(query, key, value, **options)
        return mixed
    mixed, sums = flex(query, key, value, **options, return_aux=AuxRequest(lse=True))
    return mixed * torch.sigmoid(sums.lse - sinks[:, None]).unsqueeze(-1).to(mixed.dtype)


@functools.cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention, dynamic=False)
