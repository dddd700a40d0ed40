"""A package flash_attn that runs on a CPU: what flash-attn 2 offers for documents of variable length, with
its parameters, its operators and what its kernels demand (flash_attn_interface.py and csrc/flash_attn of
v2.8.3), computed by a softmax for each sequence.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch


@torch.library.custom_op("flash_attn::_flash_attn_varlen_forward", mutates_args=())
def _flash_attn_varlen_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    return_softmax: bool = False,
    block_table: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    tensors, starts = (q, k, v), (cu_seqlens_q, cu_seqlens_k)
    assert all(one.dtype == q.dtype in (torch.float16, torch.bfloat16) for one in tensors)
    assert all(one.dim() == 3 and one.stride(-1) == 1 for one in tensors)
    assert q.shape[2] % 8 == 0 and q.shape[2] <= 256 and q.shape[1] % k.shape[1] == 0
    assert all(one.dtype == torch.int32 and one.is_contiguous() for one in starts)
    lengths = (max_seqlen_q, max_seqlen_k)
    assert all(one.diff().max() <= most for one, most in zip(starts, lengths, strict=True))
    mixed = torch.full_like(q, torch.nan)  # as the kernels leave what no sequence covers
    values = v.float().repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    for place, softmax in _softmaxes(q, k, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal):
        mixed[place] = torch.einsum("hqk,khd->qhd", softmax, values[place]).to(q.dtype)
    sums = torch.zeros(q.shape[1], q.shape[0])
    return mixed, sums, q.new_empty(0), torch.zeros(2, dtype=torch.int64)


@_flash_attn_varlen_forward.register_fake
def _(q: torch.Tensor, *arguments: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    sums = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    state = torch.empty(2, dtype=torch.int64, device=q.device)
    return torch.empty_like(q), sums, q.new_empty(0), state


@torch.library.custom_op("flash_attn::_flash_attn_varlen_backward", mutates_args=("dq", "dk", "dv"))
def _flash_attn_varlen_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    dq: torch.Tensor | None,
    dk: torch.Tensor | None,
    dv: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: torch.Tensor | None,
    deterministic: bool,
    rng_state: torch.Tensor | None = None,
    zero_tensors: bool = False,
) -> torch.Tensor:
    assert dout.dtype == q.dtype and out.shape == q.shape and dq is not None
    assert dk is not None and dv is not None
    group = q.shape[1] // k.shape[1]
    for place, softmax in _softmaxes(q, k, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal):
        queries, gradient = q[place].float(), dout[place].float()
        keys, values = (one[place].float().repeat_interleave(group, dim=1) for one in (k, v))
        shares = torch.einsum("qhd,khd->hqk", gradient, values)
        scores = softmax * (shares - (softmax * shares).sum(-1, keepdim=True)) * softmax_scale
        dq[place] = torch.einsum("hqk,khd->qhd", scores, keys).to(q.dtype)
        for gradients, weights, by in ((dk, scores, queries), (dv, softmax, gradient)):
            of_each = torch.einsum("hqk,qhd->khd", weights, by)
            gradients[place] = of_each.unflatten(1, (-1, group)).sum(2).to(q.dtype)
    return torch.zeros_like(softmax_lse)


@_flash_attn_varlen_backward.register_fake
def _(*arguments: Any, **options: Any) -> torch.Tensor:
    return torch.empty_like(arguments[5])


def _softmaxes(
    q: torch.Tensor,
    k: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    scale: float,
    causal: bool,
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Where each sequence is, and its softmax [heads, queries, keys]."""
    assert causal and torch.equal(cu_seqlens_q, cu_seqlens_k)
    keys = k.float().repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    for first, end in itertools.pairwise(cu_seqlens_q.tolist()):
        scores = torch.einsum("qhd,khd->hqk", q[first:end].float(), keys[first:end]) * scale
        later = torch.ones(end - first, end - first, dtype=torch.bool).triu(1)
        yield slice(first, end), scores.masked_fill(later, -torch.inf).softmax(-1)


class FlashAttnVarlenFunc(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        dropout_p: float,
        softmax_scale: float | None,
        causal: bool,
        window_size: Sequence[int],
        softcap: float,
        alibi_slopes: torch.Tensor | None,
        deterministic: bool,
        return_softmax: bool,
        block_table: torch.Tensor | None,
        is_grad_enabled: bool,
    ) -> torch.Tensor:
        if softmax_scale is None:
            softmax_scale = q.shape[-1] ** (-0.5)
        out, softmax_lse, _, rng_state = torch.ops.flash_attn._flash_attn_varlen_forward(
            *(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale),
            causal=causal,
            window_size_left=window_size[0],
            window_size_right=window_size[1],
            softcap=softcap,
            alibi_slopes=alibi_slopes,
            return_softmax=return_softmax and dropout_p > 0,
            block_table=block_table,
        )
        if is_grad_enabled and any(one.requires_grad for one in (q, k, v)):
            ctx.save_for_backward(q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k, rng_state)
            ctx.given = (max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, *window_size, softcap)
            ctx.alibi_slopes, ctx.deterministic = alibi_slopes, deterministic
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k, rng_state = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        torch.ops.flash_attn._flash_attn_varlen_backward(
            *(gradients[0], q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k),
            *(*ctx.given, ctx.alibi_slopes, ctx.deterministic),
            rng_state=rng_state,
        )
        return dq, dk, dv, *[None] * 14


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    mixed: torch.Tensor = FlashAttnVarlenFunc.apply(
        *(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal),
        *(window_size, softcap, alibi_slopes, deterministic, return_attn_probs, block_table),
        torch.is_grad_enabled(),
    )
    return mixed
