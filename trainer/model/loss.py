"""Summed cross-entropy of a linear head, chunk by chunk, so that all logits never exist at once in fp32."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch._subclasses import FakeTensor

IGNORED = -100
# Logits of one chunk: large matrix products, and few sums over the gradient of the head.
CHUNK_LOGITS = {"cpu": 8 * 1024 * 1024, "cuda": 256 * 1024 * 1024}
# Logits of a compiled chunk, which take 4 bytes each.
COMPILED_CHUNK_LOGITS = 1024 * 1024 * 1024
MIN_CHUNK_ROWS = 128
# A CPU takes the softmax of so many of them at a time on each thread: 1 MB in fp32, which stays in its cache.
CACHED_LOGITS = 256 * 1024


def summed_cross_entropy(
    hidden: torch.Tensor,
    head: torch.Tensor,
    targets: torch.Tensor,
    vocab_size: int,
    z_loss: float = 0.0,
    *,
    compiled: bool = False,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The sum over all positions of -log p(target), in nats, fp32. Divide it by the number of targets in the
    global batch, not in one micro-batch.

    `hidden` [n, d_model], `head` [padded vocabulary, d_model], `targets` [n] int64, -100 to ignore a
    position. Rows of `head` from `vocab_size` on have probability and gradient zero. The forward pass also
    computes the gradients, chunk by chunk, so that logits are computed once.

    `z_loss` adds the gradients of z_loss * log(Z)^2, but not its value; Z is the sum of exp(logits). It keeps
    logits from drifting (PaLM, section 5). `compiled`: by torch.compile, for a GPU. `weights` [n] fp32
    multiply the gradient of each position, but not its value.
    """
    chunks = _Chunks(vocab_size, z_loss, torch.is_grad_enabled(), compiled)
    return _HeadLoss.apply(hidden, head, targets, weights, chunks)


@torch.no_grad()
def log_probabilities(
    hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """log p of each of `targets` [n] at `hidden` [n, d_model], in nats, fp32 [n], under the autocast of the
    caller. Not all logits exist at once.
    """
    rows = max(1, CHUNK_LOGITS[hidden.device.type] // vocab_size)
    found = [
        F.linear(some, head)[..., :vocab_size].float().log_softmax(dim=-1).gather(1, aimed[:, None])[:, 0]
        for some, aimed in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    return torch.cat(found)


@dataclass(frozen=True)
class _Chunks:
    """How many rows of logits exist at once, and what is computed of them."""

    vocab_size: int
    z_loss: float
    with_gradient: bool
    compiled: bool

    def rows(self, hidden: torch.Tensor, head: torch.Tensor) -> int:
        """The rows of each chunk but the last."""
        if self.compiled:
            return equal_rows(len(hidden), max(MIN_CHUNK_ROWS, COMPILED_CHUNK_LOGITS // len(head)))
        return max(MIN_CHUNK_ROWS, CHUNK_LOGITS[hidden.device.type] // len(head))

    def loss(
        self, inputs: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of a chunk and, `with_gradient`, its gradient with respect to the logits (softmax minus
        one-hot), in the type of `inputs`.
        """
        products, rows = inputs @ weight.T, len(inputs)
        settings = self.vocab_size, self.z_loss, self.with_gradient
        if self.compiled:
            return compiled_softmax_loss()(products, targets, *settings)
        if inputs.device.type == "cpu":
            rows = max(1, CACHED_LOGITS * torch.get_num_threads() // len(weight))
        loss = torch.zeros((), dtype=torch.float32, device=inputs.device)
        parts = list(zip(products.split(rows), targets.split(rows), strict=True))
        # A memory estimate: tensors without content, of which each part takes what the first did.
        for part, aims in parts[:1] if isinstance(products, FakeTensor) else parts:
            loss += _softmax_loss(part, aims, *settings)
        return loss, products


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor | None,
        chunks: _Chunks,
    ) -> torch.Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        with torch.autocast(device, enabled=False):
            weight = head.to(dtype)
            loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
            hidden_gradient = torch.empty_like(hidden) if chunks.with_gradient else None
            # FSDP gathers a head in half precision, in which the chunks' sum would lose digits.
            wide = torch.promote_types(head.dtype, torch.float32)
            head_learns = chunks.with_gradient and ctx.needs_input_grad[1]
            begins_with_zeros = head_learns and not chunks.compiled
            head_gradient = torch.zeros_like(head, dtype=wide) if begins_with_zeros else None
            rows = chunks.rows(hidden, head)
            for start in range(0, len(hidden), rows):
                here = slice(start, start + rows)
                counted = (targets[here] != IGNORED)[:, None].to(dtype)
                if weights is not None:
                    counted = counted * weights[here, None]
                inputs = hidden[here].to(dtype)
                chunk_loss, logits_gradient = chunks.loss(inputs, weight, targets[here])
                loss += chunk_loss
                if hidden_gradient is None:
                    continue
                hidden_gradient[here] = (logits_gradient @ weight) * counted
                if not head_learns:
                    continue
                products = logits_gradient.T @ (inputs * counted).to(dtype)
                if head_gradient is not None:
                    head_gradient += products
                else:
                    # That of a single chunk stays in the type of the products until it is scaled.
                    head_gradient = products if rows >= len(hidden) else products.to(wide)
        if hidden_gradient is not None:
            ctx.save_for_backward(hidden_gradient, head_gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_gradient, head_gradient = ctx.saved_tensors
        # With one dimension the factor, in fp32, decides the type: scaled and widened in one pass.
        scaled = hidden_gradient * gradients[0]
        of_head = None if head_gradient is None else head_gradient * gradients[0][None]
        return scaled, of_head, None, None, None


def _softmax_loss(
    products: torch.Tensor, targets: torch.Tensor, vocab_size: int, z_loss: float, with_gradient: bool
) -> torch.Tensor:
    """The loss of the rows with these `products`, which `with_gradient` are overwritten by the gradient."""
    logits = products.float()
    logits[:, vocab_size:] = -torch.inf
    index = targets.clamp(min=0)[:, None]
    largest, aimed = logits.amax(dim=-1, keepdim=True), logits.gather(1, index)
    probabilities = logits.softmax(dim=-1)
    # log(sum of exp(logits - largest)) is -log of the largest probability, so the softmax that the gradient
    # needs anyway is the only pass of exp.
    log_likeliest = probabilities.amax(dim=-1, keepdim=True).log()
    if with_gradient:
        if z_loss:
            probabilities *= 1 + 2 * z_loss * (largest - log_likeliest)
        probabilities.scatter_add_(1, index, torch.full_like(largest, -1.0))
        products.copy_(probabilities)
    return (largest - aimed - log_likeliest)[:, 0].where(targets != IGNORED, 0.0).sum()


@functools.cache
def compiled_softmax_loss() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    return torch.compile(softmax_loss, dynamic=False)


def softmax_loss(
    products: torch.Tensor, targets: torch.Tensor, vocab_size: int, z_loss: float, with_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The summed loss of rows with these `products` [rows, padded vocabulary] of the head, and its gradient
    with respect to them, in their type. Without gradient the second is `products`. The compiler makes one
    pass of it: 4 bytes of traffic for each logit in bf16, instead of 28 uncompiled and 22 with a scatter.

    The arguments are those of summed_cross_entropy; a row with a negative target counts nothing, but its
    gradient is not zero.
    """
    column = torch.arange(products.shape[1], device=products.device)
    logits = products.float().masked_fill(column >= vocab_size, -torch.inf)
    index = targets.clamp(min=0)[:, None]
    log_sum = logits.logsumexp(dim=-1, keepdim=True)
    loss = (log_sum - logits.gather(1, index))[:, 0].where(targets >= 0, 0.0).sum()
    if not with_gradient:
        return loss, products
    probabilities = (logits - log_sum).exp()
    if z_loss:
        probabilities = probabilities * (1 + 2 * z_loss * log_sum)
    # A comparison, where a scatter would be a pass of its own.
    gradient = probabilities - (column == index).float()
    return loss, gradient.to(products.dtype)


def equal_rows(rows: int, most: int) -> int:
    """Rows of one chunk: at most `most`, and such that chunks are equal if possible, because the compiler
    makes code for each number of rows.
    """
    chunks = -(-rows // most)
    for more in range(chunks, 2 * chunks + 1):
        if rows % more == 0:
            return rows // more
    return -(-rows // chunks)
