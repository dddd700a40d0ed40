"""Replaces spans in the text, maps spans of the result to the original, and counts them in characters."""

import numpy as np

from pipeline.stages.compiled import inner_uncached, kernel
from pipeline.stages.pii.kinds import DOCUMENT, END, PATTERN, START


@inner_uncached
def _copy(source: np.ndarray, start: int, end: int, out: np.ndarray, written: int) -> int:
    """Copies `source[start:end]` to `out` at `written`; returns the position after it."""
    for i in range(end - start):
        out[written + i] = source[start + i]
    return written + end - start


@inner_uncached
def _growth(span: np.ndarray, starts: np.ndarray) -> int:
    """Bytes by which the text grows when the span is replaced."""
    return starts[span[PATTERN] + 1] - starts[span[PATTERN]] - (span[END] - span[START])


@kernel
def replace(
    data: np.ndarray, offsets: np.ndarray, spans: np.ndarray, placeholders: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and offsets (from 0) of the documents with each span replaced.

    The placeholder of pattern i is `placeholders[starts[i]:starts[i + 1]]`.
    """
    size = offsets[-1] - offsets[0]
    for span in spans:
        size += _growth(span, starts)
    out = np.empty(size, np.uint8)
    out_offsets = np.empty(len(offsets), np.int64)
    out_offsets[0] = 0
    read, written, k = offsets[0], 0, 0
    for document in range(len(offsets) - 1):
        while k < len(spans) and spans[k, DOCUMENT] == document:
            pattern = spans[k, PATTERN]
            written = _copy(data, read, spans[k, START], out, written)
            written = _copy(placeholders, starts[pattern], starts[pattern + 1], out, written)
            read = spans[k, END]
            k += 1
        written = _copy(data, read, offsets[document + 1], out, written)
        read = offsets[document + 1]
        out_offsets[document + 1] = written
    return out, out_offsets


@kernel
def merge(
    offsets: np.ndarray, spans: np.ndarray, out_offsets: np.ndarray, found: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """The union of `spans` and of the spans `found` in the text that `replace` made of them.

    In bytes of the original. A found span absorbs the spans that it overlaps.
    """
    merged = np.empty((len(spans) + len(found), 4), np.int64)
    count, k, f = 0, 0, 0
    document, shift = -1, 0
    while k < len(spans) or f < len(found):
        if k == len(spans):
            row = found[f, DOCUMENT]
        elif f == len(found):
            row = spans[k, DOCUMENT]
        else:
            row = min(spans[k, DOCUMENT], found[f, DOCUMENT])
        if row != document:
            document, shift = row, out_offsets[row] - offsets[row]
        has_span = k < len(spans) and spans[k, DOCUMENT] == document
        has_found = f < len(found) and found[f, DOCUMENT] == document
        if has_span:
            growth = _growth(spans[k], starts)
            if not has_found or found[f, START] >= spans[k, END] + shift + growth:
                for column in range(4):
                    merged[count, column] = spans[k, column]
                count += 1
                shift += growth
                k += 1
                continue
        pattern, out_start, out_end = found[f, PATTERN], found[f, START], found[f, END]
        start, end = out_start - shift, out_end - shift
        while k < len(spans) and spans[k, DOCUMENT] == document and spans[k, START] + shift < out_end:
            growth = _growth(spans[k], starts)
            placeholder_start, placeholder_end = spans[k, START] + shift, spans[k, END] + shift + growth
            if placeholder_start <= out_start:
                start = spans[k, START]
            if placeholder_start == out_start and placeholder_end == out_end:
                pattern = spans[k, PATTERN]
            shift += growth
            end = max(out_end - shift, spans[k, END])
            k += 1
        merged[count, DOCUMENT], merged[count, PATTERN] = document, pattern
        merged[count, START], merged[count, END] = start, end
        count += 1
        f += 1
    return merged[:count].copy()


@kernel
def in_characters(data: np.ndarray, offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """(start, end) of each span in characters from the start of its document."""
    result = np.empty((len(spans), 2), np.int64)
    document, position, characters = -1, 0, 0
    for k in range(len(spans)):
        if spans[k, DOCUMENT] != document:
            document, characters = spans[k, DOCUMENT], 0
            position = offsets[document]
        for edge in range(2):
            target = spans[k, START + edge]
            for i in range(position, target):
                characters += (data[i] & 0xC0) != 0x80
            position = target
            result[k, edge] = characters
    return result
