"""Causal attention: one function over four backends, and the choice of the backend."""

import functools
import importlib.util
import math
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from trainer.system.errors import TrainerError

Backend = Literal["math", "sdpa", "flex", "flash"]
# Which positions a query may attend to: booleans [batch, 1, length, total], or a BlockMask for flex.
Mask = torch.Tensor | BlockMask

# Up to this length plain matrix products are faster than SDPA's CPU kernel. bf16, Zen 5: 1.65 to 2.1 times
# up to 512. fp32, Zen 3, forward and backward, compiled, 6 heads of 64: 1.1 times at 128, 1.2 at 256, 1.5 at
# 512, 1.0 at 1024. fp32 stops at 256 because SDPA does not store the scores: at 512 a step of 16 windows and
# 6 layers took 2.1 GB with SDPA and 2.8 GB with products, which were at most 9% faster.
# Fixed lengths, no measurement at start: in a step of the default recipe in bf16 on a Xeon with AMX products
# took 474 ms of processor time and SDPA 478. On a busy machine a measurement of milliseconds would give two
# runs of one configuration different results.
MATH_MAX_LENGTH = {torch.bfloat16: 512, torch.float16: 512, torch.float32: 256}
# Queries multiplied at a time, with the keys up to the last query: later keys, which the causal order hides
# from all of these queries, are left out.
MATH_QUERIES = 128
# In fp32, flex's own blocks of heads wider than this take 148 KB of shared memory, of which an RTX 4090 or L4
# has 99. These take less than 99.
WIDEST_HEAD_IN_FP32 = 64
SMALL_BLOCKS = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 32, "fwd_num_stages": 1}


def choose(
    wanted: Backend | Literal["auto"],
    device: torch.device,
    dtype: torch.dtype,
    seq_len: int,
    masked: bool,
    sinks: bool = False,
) -> Backend:
    """The backend for queries of `dtype`; `masked` when documents are kept apart.

    On a GPU, `auto` is flex for masked documents, because it skips hidden blocks; otherwise flash-attn where
    installed, else SDPA. Neither of these two supports attention `sinks`, because they do not return the sums
    of the softmax. Raises TrainerError when `wanted` cannot be used here.
    """
    if sinks and wanted in ("sdpa", "flash"):
        raise TrainerError(
            f"training.attention {wanted} cannot be used with model.attention_sinks; set attention: auto"
        )
    flash_fits = device.type == "cuda" and dtype in (torch.bfloat16, torch.float16) and not masked
    flash_installed = _flash_attn_is_installed()
    if wanted == "flash" and not (flash_fits and flash_installed):
        reason = (
            "it needs a GPU, bf16 or fp16, and document_masking: false"
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
    return "flash" if flash_fits and flash_installed else "sdpa"


def _flash_attn_is_installed() -> bool:
    """Whether flash-attn 2 is. That of flash-attn 4 has `flash_attn.cute` only, without an `__init__`."""
    found = importlib.util.find_spec("flash_attn")
    return found is not None and found.origin is not None


def masks_documents(wanted: bool | Literal["auto"], device: torch.device) -> bool:
    """Whether attention keeps the documents of a window apart. `auto`: on a GPU, where it costs little, but
    not on a CPU, where a mask makes attention slower.
    """
    return device.type == "cuda" if wanted == "auto" else wanted


def document_numbers(tokens: torch.Tensor, bot_id: int) -> torch.Tensor:
    """For each of `tokens` [batch, length], the number of [BOT]s in its row so far: its document."""
    return (tokens == bot_id).cumsum(dim=1)


def document_mask(documents: torch.Tensor | None, length: int, backend: Backend) -> Mask | None:
    """The causal mask that also keeps `documents` [batch, total] apart, for the last `length` positions.

    None without documents. Its shape does not depend on the boundaries of documents, so nothing is recompiled
    for other boundaries. Takes batch * length * total bytes, once for all layers.
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
    length, cached = query.shape[2], key.shape[2] - query.shape[2]
    bias = torch.zeros(visible.shape, dtype=query.dtype, device=query.device).masked_fill(~visible, -math.inf)
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
    # Uncompiled, flex stores all scores. Inside a compiled block it is compiled with the block.
    flex: Any = _compiled_flex() if query.is_cuda and not torch.compiler.is_compiling() else flex_attention
    options: dict[str, Any] = {"block_mask": mask, "enable_gqa": query.shape[1] != key.shape[1]}
    if query.dtype == torch.float32 and query.shape[3] > WIDEST_HEAD_IN_FP32:
        options["kernel_options"] = SMALL_BLOCKS
    mixed: torch.Tensor
    if sinks is None:
        mixed = flex(query, key, value, **options)
        return mixed
    mixed, auxiliary = flex(query, key, value, **options, return_aux=AuxRequest(lse=True))
    return mixed * torch.sigmoid(auxiliary.lse - sinks[:, None]).unsqueeze(-1).to(mixed.dtype)


@functools.cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention, dynamic=False)
