"""Causal attention behind one signature; the backend follows from the device, the type, the length and
whether documents are masked.
"""

import functools
import importlib.util
import math
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from trainer.system.errors import TrainerError

Backend = Literal["math", "sdpa", "flex", "flash"]
# What may attend to what beyond the causal order: booleans [batch, 1, length, total], or blocks of them for
# flex.
Mask = torch.Tensor | BlockMask

# Up to here softmax(QK')V by plain matrix products is faster than SDPA's CPU kernel. bf16, Zen 5: 1.65 to 2.1
# times up to 512. fp32, Zen 3, forward and backward, compiled, 6 heads of 64: 1.1 times at 128, 1.2 at 256,
# 1.5 at 512, 1.0 at 1024. But SDPA keeps no scores: at 512 in fp32 a step of
# 16 windows and 6 layers took 2.8 GB by products instead of 2.1, and was at most 9% faster.
MATH_MAX_LENGTH = {torch.bfloat16: 512, torch.float16: 512, torch.float32: 256}
# Queries that are multiplied at once, with the keys up to the last of them: what the causal order hides from
# all of them is never computed.
MATH_QUERIES = 128


def choose(
    wanted: Backend | Literal["auto"],
    device: torch.device,
    dtype: torch.dtype,
    seq_len: int,
    masked: bool,
    sinks: bool = False,
) -> Backend:
    """The backend for queries of `dtype`; `masked` when documents are kept apart. TrainerError when `wanted`
    cannot do that here.

    On a GPU masked documents go to flex, which skips what they hide, and the rest to flash-attn where it is
    installed, else SDPA. Neither of those two can have attention `sinks`: they keep the sum of a softmax to
    themselves.
    """
    if sinks and wanted in ("sdpa", "flash"):
        raise TrainerError(
            f"training.attention {wanted} cannot be used with model.attention_sinks; set attention: auto"
        )
    flash_fits = device.type == "cuda" and dtype in (torch.bfloat16, torch.float16) and not masked
    flash_is_there = importlib.util.find_spec("flash_attn") is not None
    if wanted == "flash" and not (flash_fits and flash_is_there):
        reason = (
            "it needs a GPU, bf16 and document_masking: false"
            if not flash_fits
            else "the package flash-attn is not installed"
        )
        raise TrainerError(f"training.attention flash cannot be used: {reason}; set attention: auto")
    if wanted == "flex" and device.type != "cuda":
        raise TrainerError("training.attention flex has no backward pass on a CPU; set attention: auto")
    if wanted != "auto":
        return wanted
    if device.type == "cuda" and masked:
        return "flex"
    if sinks or (device.type == "cpu" and seq_len <= MATH_MAX_LENGTH[dtype]):
        return "math"
    return "flash" if flash_fits and flash_is_there else "sdpa"


def masks_documents(wanted: bool | Literal["auto"], device: torch.device) -> bool:
    """Whether documents in a window are kept apart. `auto`: on a GPU, where it costs little; on a CPU a mask
    makes attention slower.
    """
    return device.type == "cuda" if wanted == "auto" else wanted


def document_numbers(tokens: torch.Tensor, bot_id: int) -> torch.Tensor:
    """The document that each token of `tokens` [batch, length] belongs to, counted in its row: one more from
    each [BOT] on.
    """
    return (tokens == bot_id).cumsum(dim=1)


def document_mask(documents: torch.Tensor | None, length: int, backend: Backend) -> Mask | None:
    """What keeps `documents` [batch, total] apart for the last `length` positions; made once for all layers.
    None when they are not masked.

    Its shapes follow from the batch alone, so other boundaries never compile anything anew. Making it takes
    batch * length * total bytes.
    """
    if documents is None:
        return None
    if backend == "flex":

        def visible(
            batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
        ) -> torch.Tensor:
            return (query >= key) & (documents[batch, query] == documents[batch, key])

        return create_block_mask(
            visible, documents.shape[0], None, length, documents.shape[1], documents.device
        )
    same = documents[:, -length:, None] == documents[:, None, :]
    return (same & _causal(length, documents.shape[1], documents.device))[:, None]


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    backend: Backend,
    mask: Mask | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention: query [batch, heads, length, head_dim], key and value [batch, kv_heads, total,
    head_dim], total >= length.

    The queries are the last `length` of `total` positions, so with a cache the last query sees every key.
    With a `mask` of `document_mask`, a token attends only to its own document. Query heads share key heads in
    consecutive groups. `sinks` [heads] are logits that take part in each softmax without a value, for math
    and flex only. Returns [batch, heads, length, head_dim].
    """
    length, total = query.shape[2], key.shape[2]
    if isinstance(mask, BlockMask):
        return _flex(query, key, value, mask, sinks)
    if backend == "flash" and mask is None and query.dtype != torch.float32:
        return _flash(query, key, value)
    backend = backend if sinks is None else "math"
    if mask is None and (backend == "math" or length != total):
        mask = _causal(length, total, query.device)
    if backend == "math":
        assert mask is not None
        return _math(query, key, value, mask, sinks)
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped
    )


def _causal(length: int, total: int, device: torch.device) -> torch.Tensor:
    return torch.ones(length, total, dtype=torch.bool, device=device).tril(total - length)


def _math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    length, before = query.shape[2], key.shape[2] - query.shape[2]
    bias = torch.zeros(visible.shape, dtype=query.dtype, device=query.device).masked_fill(~visible, -math.inf)
    mixed = []
    for start in range(0, length, MATH_QUERIES):
        stop = min(start + MATH_QUERIES, length)
        seen = before + stop
        mixed.append(
            _products(
                query[:, :, start:stop],
                key[:, :, :seen],
                value[:, :, :seen],
                bias[..., start:stop, :seen],
                sinks,
            )
        )
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
    # The heads that share a key head lie below each other, so that one matrix product serves them; scale and
    # mask are part of it.
    stacked = (batch * kv_heads, heads // kv_heads * length)
    key, value = key.reshape(stacked[0], total, head_dim), value.reshape(stacked[0], total, head_dim)
    bias = bias.expand(batch, heads, length, total).reshape(*stacked, total)
    scores = torch.baddbmm(
        bias, query.reshape(*stacked, head_dim), key.transpose(1, 2), alpha=1 / math.sqrt(head_dim)
    )
    if sinks is not None:
        sink = sinks.to(scores.dtype)[:, None].expand(batch, heads, length).reshape(*stacked, 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    return (weights @ value).view(batch, heads, length, head_dim)


def _flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    from flash_attn import flash_attn_func

    mixed: torch.Tensor = flash_attn_func(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), causal=True
    )
    return mixed.transpose(1, 2)


def _flex(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: BlockMask, sinks: torch.Tensor | None
) -> torch.Tensor:
    # Uncompiled, flex holds all scores. Inside a compiled block it is compiled with the block.
    flex: Any = _compiled_flex() if query.is_cuda and not torch.compiler.is_compiling() else flex_attention
    grouped = query.shape[1] != key.shape[1]
    mixed: torch.Tensor
    if sinks is None:
        mixed = flex(query, key, value, block_mask=mask, enable_gqa=grouped)
        return mixed
    mixed, of_sums = flex(
        query, key, value, block_mask=mask, enable_gqa=grouped, return_aux=AuxRequest(lse=True)
    )
    return mixed * torch.sigmoid(of_sums.lse - sinks[:, None]).unsqueeze(-1).to(mixed.dtype)


@functools.cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention, dynamic=False)
