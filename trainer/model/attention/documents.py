"""Documents in the windows of a micro-batch: their numbers, and the mask of each backend that keeps them
apart.
"""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

Backend = Literal["math", "sdpa", "flex", "flash"]


class DocumentStarts(NamedTuple):
    """Where the documents of a micro-batch begin, its rows [batch, length] read as one: the `cu_seqlens` of
    kernels of variable length.

    `starts` int32 [most + 1] ascends from 0. All entries behind the last document are batch * length, so
    their documents are empty.
    """

    starts: torch.Tensor


# Which positions a query may attend to: booleans [batch, 1, length, total], or what flex or flash take.
Mask = torch.Tensor | BlockMask | DocumentStarts


def document_numbers(tokens: torch.Tensor, bot_id: int) -> torch.Tensor:
    """For each of `tokens` [batch, length], the number of [BOT]s in its row so far: its document."""
    return (tokens == bot_id).cumsum(dim=1)


def document_mask(
    documents: torch.Tensor | None, length: int, backend: Backend, most: int | None = None
) -> Mask | None:
    """The causal mask that also keeps `documents` [batch, total] apart, for the last `length` positions.

    None without documents. Its shape does not depend on the boundaries of documents, so nothing is recompiled
    for other boundaries. Takes batch * length * total bytes, once for all layers, with flex on a GPU a
    thousandth of them; for flash 4 * batch * `most`, where `most` is how many documents a row has at most
    (None: one at each position).
    """
    if documents is None:
        return None
    if backend == "flash" and documents.shape[1] == length:
        return boundaries(documents, most or length)
    if backend == "flex":

        def visible(
            batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
        ) -> torch.Tensor:
            return (query >= key) & (documents[batch, query] == documents[batch, key])

        on_gpu = documents.is_cuda and not torch.compiler.is_compiling()
        create = compiled_block_mask() if on_gpu else create_block_mask
        return create(visible, documents.shape[0], None, length, documents.shape[1], documents.device)
    return same_document(documents, length)


@functools.cache
def compiled_block_mask() -> Callable[..., BlockMask]:
    """`create_block_mask` without the ten bytes that it otherwise takes for each query and key."""
    return torch.compile(create_block_mask, dynamic=False)


def boundaries(documents: torch.Tensor, most: int) -> DocumentStarts:
    """The boundaries of `documents` [batch, length], at most `most` in each row, without a look at them from
    the host. A row begins with a document, also if the text does not.
    """
    batch = len(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    so_far = begins.flatten().cumsum(0)
    # The kernels would leave out what is behind the last boundary.
    torch._assert_async(so_far[-1] <= batch * most, "a window has more documents than its corpus' index says")
    wanted = torch.arange(1, batch * most + 2, device=documents.device)
    return DocumentStarts(torch.searchsorted(so_far, wanted, out_int32=True))


def same_document(documents: torch.Tensor, length: int) -> torch.Tensor:
    """The mask [batch, 1, length, total] of `document_mask`, as booleans."""
    same = documents[:, -length:, None] == documents[:, None, :]
    return (same & causal(length, documents.shape[1], documents.device))[:, None]


def within(boundaries: DocumentStarts, batch: int, length: int) -> torch.Tensor:
    """The mask [batch, 1, length, length] that the boundaries stand for, as booleans."""
    positions = torch.arange(batch * length, dtype=torch.int32, device=boundaries.starts.device)
    numbers = torch.searchsorted(boundaries.starts, positions, right=True)
    return same_document(numbers.view(batch, length), length)


def causal(length: int, total: int, device: torch.device) -> torch.Tensor:
    """The causal order [length, total] of the last `length` of `total` positions, as booleans."""
    return torch.ones(length, total, dtype=torch.bool, device=device).tril(total - length)
