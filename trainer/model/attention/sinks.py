"""Attention sinks: a learned logit for each head in the denominator of its softmax, as in gpt-oss (OpenAI
2025, arXiv 2508.10925), so that a head need not attend to anything.

Whatever computes attention without sinks is used for attention with them: with `sum` the sum of a query's
exponentials, a sink multiplies what the query reads by sum / (sum + exp(sink)) = sigmoid(log(sum) - sink).
"""

import math
from typing import Any

import torch

Gradients = tuple[torch.Tensor | None, ...]
# What memory-efficient attention, the kernel for a GPU, needs: heads of whole blocks of 16 bytes.
HEAD_MULTIPLE = 8


def are_fused(query: torch.Tensor, mask: torch.Tensor | None, total: int) -> bool:
    """Whether `FusedWithSinks` takes these queries: on a CPU any, on a GPU those of whole windows without a
    mask, which would take as much memory as plain matrix products.
    """
    _, _, length, head_dim = query.shape
    return not query.is_cuda or (mask is None and length == total and head_dim % HEAD_MULTIPLE == 0)


class SoftmaxProductsWithSinks(torch.autograd.Function):
    """As `_SoftmaxProducts` of trainer/model/attention/compute.py, with `sinks` [n, length, 1] in fp32."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor,
        sinks: torch.Tensor,
    ) -> torch.Tensor:
        scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=1 / math.sqrt(query.shape[-1]))
        weights = scores.softmax(dim=-1)
        # The largest weight is exp(largest score - log of the sum). A sink among the scores would take a
        # copy of them, which in bf16 on a CPU costs 0.7 of the whole.
        log_sum = scores.amax(-1, keepdim=True).float() - weights.amax(-1, keepdim=True).float().log()
        kept = torch.sigmoid(log_sum - sinks)
        weights.mul_(kept.to(weights.dtype))
        mixed = weights @ value
        ctx.save_for_backward(query, key, value, weights, mixed, kept)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        query, key, value, weights, mixed, kept = ctx.saved_tensors
        scale = 1 / math.sqrt(query.shape[-1])
        value_gradient = weights.transpose(1, 2) @ gradients[0]
        shares = gradients[0] @ value.transpose(1, 2)
        # The sink has no value, so the sum over the other weights is the sum over all.
        scores_gradient = torch._softmax_backward_data(shares, weights, -1, weights.dtype)
        key_gradient = (scores_gradient.transpose(1, 2) @ query) * scale
        sinks_gradient = (kept - 1) * _dot(gradients[0], mixed).unsqueeze(-1)
        return (scores_gradient @ key) * scale, key_gradient, value_gradient, None, sinks_gradient


class FusedWithSinks(torch.autograd.Function):
    """Causal attention, or that of `bias` [length, total] or [batch, 1, length, total], in the kernels of
    PyTorch's scaled_dot_product_attention; `sinks` [heads] in fp32. Heads and kv_heads are equal on a GPU.

    The kernels' backward pass computes weights as exp(score - log of the sum). Given the sum with the sink it
    gives the gradients with the sink.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        sinks: torch.Tensor,
    ) -> torch.Tensor:
        causal = bias is None
        random: list[torch.Tensor] = []
        if query.is_cuda:
            mixed, log_sum, *random = torch.ops.aten._scaled_dot_product_efficient_attention(
                query, key, value, None, True, 0.0, causal
            )
        else:
            mixed, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, 0.0, causal, attn_mask=bias
            )
        # A GPU's kernel pads the sums to whole blocks of queries.
        kept = torch.sigmoid(log_sum[..., : query.shape[2]] - sinks[:, None])
        mixed = mixed * kept.unsqueeze(-1).to(mixed.dtype)
        log_sum = torch.logaddexp(log_sum, sinks[:, None])
        ctx.save_for_backward(query, key, value, bias, mixed, log_sum, kept, *random)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        query, key, value, bias, mixed, log_sum, kept, *random = ctx.saved_tensors
        given, causal = (gradients[0], query, key, value), bias is None
        if query.is_cuda:
            wanted = [True, True, True, False]
            found = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
                *given, None, mixed, log_sum, *random, 0.0, wanted, causal
            )[:3]
        else:
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                *given, mixed, log_sum, 0.0, causal, attn_mask=bias
            )
        sinks_gradient = ((kept - 1) * _dot(gradients[0], mixed)).sum((0, 2))
        return *found, None, sinks_gradient


def _dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The dot product of each query, in fp32."""
    return (one.float() * other.float()).sum(dim=-1)
