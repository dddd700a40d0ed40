"""Cuts evaluation texts into windows, and draws those that are scored.

A window is cut in bytes of text, before any tokenizer sees it, and a model reads it as the beginning of a
document. So models with other tokenizers predict the same text after the same text, and their bits per byte
can be compared; a tokenizer with longer tokens is not given more context.
"""

import heapq
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import pyarrow as pa

VERSION = "windows-2"
WINDOW_BYTES = 1024
SCHEMA = pa.schema(
    [
        pa.field("document", pa.string(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("start", pa.int64(), nullable=False),  # in bytes of the document
        pa.field("text", pa.string(), nullable=False),
    ]
)


def windows(text: str) -> Iterator[tuple[int, str]]:
    """The windows of a text, each with its first byte: at most WINDOW_BYTES of UTF-8, together all of it. A
    window ends before white space if there is some in its second half, else between two characters.
    """
    content, start = text.encode(), 0
    while start < len(content):
        end = start + WINDOW_BYTES
        if end < len(content):
            half = start + WINDOW_BYTES // 2
            space = max(content.rfind(byte, half, end + 1) for byte in (b" ", b"\n"))
            end = space if space > 0 else end
            while content[end] & 0b1100_0000 == 0b1000_0000:  # in the midst of a character
                end -= 1
        yield start, content[start:end].decode()
        start = end


def drawn(documents: Iterable[pa.RecordBatch], max_bytes: int) -> tuple[pa.Table, dict[str, int]]:
    """At least `max_bytes` of windows in order, and counts of all. A hash of document and place draws them:
    most stay when a text grows. Documents have `id`, `source` and `text`. Memory is that of `max_bytes`.
    """
    kept: list[tuple[int, int, str, str | None, int, str]] = []  # a heap: the largest hash first
    counts = dict.fromkeys(("documents", "text_bytes"), 0)
    size = number = 0
    for batch in documents:
        columns = (batch.column(column).to_pylist() for column in ("id", "source", "text"))
        for name, source, text in zip(*columns, strict=True):
            counts["documents"] += 1
            for start, window in windows(text):
                taken = len(window.encode())
                counts["text_bytes"] += taken
                if not window.strip():
                    continue
                number += 1
                digest = blake2b(f"{name}:{start}".encode(), digest_size=8).digest()
                heapq.heappush(kept, (-int.from_bytes(digest), number, name, source, start, window))
                size += taken
                while size - (largest := len(kept[0][-1].encode())) >= max_bytes:
                    heapq.heappop(kept)
                    size -= largest
    rows = [dict(zip(SCHEMA.names, row[2:], strict=True)) for row in sorted(kept, key=lambda row: row[1])]
    return pa.Table.from_pylist(rows, SCHEMA), counts | {"windows": len(rows), "scored_bytes": size}
