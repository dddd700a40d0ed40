"""A cap on the bytes of a corpus: fair shares of it, and documents up to a share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from pipeline.sources.documents import Batches, Document

ENOUGH = 0.95  # of a share: parsing every other module for what still fits would cost more than it gives


def fair_shares(sizes: Mapping[str, int], cap: int | None) -> dict[str, int]:
    """The bytes that each may give: its size or, where the sizes exceed `cap`, one level for all that are
    larger than it.
    """
    shares: dict[str, int] = {}
    left = sum(sizes.values()) if cap is None else cap
    ordered = sorted(sizes, key=lambda name: (sizes[name], name))
    for waiting, name in zip(range(len(sizes), 0, -1), ordered, strict=True):
        shares[name] = min(sizes[name], left // waiting)
        left -= shares[name]
    if cap is None:
        return shares
    # the sizes may be estimates: a cap that does not bind must not cut either
    return {name: min(2 * size, size + left // len(shares)) for name, size in shares.items()}


def whole_shares(sizes: Mapping[str, Sequence[int]], cap: int | None) -> dict[str, int]:
    """As `fair_shares`, for documents of known sizes. Each gives, in order, every document that still fits
    its share; the level is the highest at which these documents fit `cap`.
    """
    totals = {name: sum(documents) for name, documents in sizes.items()}
    if cap is None:
        return totals
    low, high = 0, max(totals.values(), default=0)
    while low < high:
        level = (low + high + 1) // 2
        if sum(_packed(documents, level) for documents in sizes.values()) <= cap:
            low = level
        else:
            high = level - 1
    return {name: min(total, low) for name, total in totals.items()}


def _packed(documents: Sequence[int], share: int) -> int:
    used = 0
    for size in documents:
        used += size if used + size <= share else 0
    return used


def take(
    file: str, documents: Iterable[Document], batches: Batches, max_bytes: int | None, enough: float = 1.0
) -> Iterator[pa.RecordBatch]:
    """Complete documents of at most `max_bytes` in total; one that does not fit is skipped. No more are read
    once they reach `enough` of `max_bytes`.
    """
    used = 0
    for document in documents:
        if max_bytes is not None and used >= enough * max_bytes:
            break
        if max_bytes is None or used + len(document.text.encode(errors="replace")) <= max_bytes:
            used += batches.add(file, document)
            yield from batches.full()
    yield from batches.rest()
