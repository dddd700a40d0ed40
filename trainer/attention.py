"""Causal attention behind one signature; the backend follows from the device and the length."""

import math
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

Backend = Literal["math", "sdpa"]

# Measured on 2 Zen 5 cores in bf16: softmax(QK')V by plain matrix products is 1.65 to 2.1 times as fast as SDPA's CPU kernel up to here.
MATH_MAX_LENGTH = 512


def choose(wanted: Literal["auto", "math", "sdpa"], device: torch.device, seq_len: int) -> Backend:
    if wanted != "auto":
        return wanted
    return "math" if device.type == "cpu" and seq_len <= MATH_MAX_LENGTH else "sdpa"


def document_numbers(tokens: torch.Tensor, bot_id: int) -> torch.Tensor:
    """The document that each token of `tokens` [batch, length] belongs to, counted in its row: one more from each [BOT] on."""
    return (tokens == bot_id).cumsum(dim=1)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, backend: Backend, documents: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention: query [batch, heads, length, head_dim], key and value [batch, kv_heads, total, head_dim], total >= length.

    The queries are the last `length` of `total` positions, so with a cache the last query sees every key. With `documents` [batch, total],
    a token attends only to its own document. Query heads share key heads in consecutive groups. Returns [batch, heads, length, head_dim].
    """
    length, total = query.shape[2], key.shape[2]
    visible = None
    if documents is not None or backend == "math" or length != total:
        visible = torch.ones(length, total, dtype=torch.bool, device=query.device).tril(total - length)
    if documents is not None and visible is not None:
        visible = visible & (documents[:, -length:, None] == documents[:, None, :])
        visible = visible[:, None]
    if backend == "math":
        assert visible is not None
        return _math(query, key, value, visible)
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, is_causal=visible is None, enable_gqa=grouped)


def _math(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    batch, heads, length, head_dim = query.shape
    kv_heads, total = key.shape[1:3]
    bias = torch.zeros(visible.shape, dtype=query.dtype, device=query.device).masked_fill(~visible, -math.inf)
    # The heads that share a key head lie below each other, so that one matrix product serves them; scale and mask are part of it.
    stacked = (batch * kv_heads, heads // kv_heads * length)
    key, value = key.reshape(stacked[0], total, head_dim), value.reshape(stacked[0], total, head_dim)
    bias = bias.expand(batch, heads, length, total).reshape(*stacked, total)
    scores = torch.baddbmm(bias, query.reshape(*stacked, head_dim), key.transpose(1, 2), alpha=1 / math.sqrt(head_dim))
    return (scores.softmax(dim=-1) @ value).view(batch, heads, length, head_dim)
