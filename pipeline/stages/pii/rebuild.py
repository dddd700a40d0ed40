"""The text with its spans replaced, spans found in it as spans of the original, and spans in characters."""

import numpy as np

from pipeline.stages.compiled import kernel, part


@part
def _copy(source: np.ndarray, start: int, end: int, out: np.ndarray, written: int) -> int:
    """Where writing goes on after `source[start:end]` is copied to `out` at `written`."""
    for i in range(end - start):
        out[written + i] = source[start + i]
    return written + end - start


@kernel
def replace(
    data: np.ndarray, offsets: np.ndarray, spans: np.ndarray, literals: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and offsets (from 0) of the documents, each span replaced by
    `literals[starts[form]:starts[form + 1]]`.
    """
    size = offsets[-1] - offsets[0]
    for k in range(len(spans)):
        form = spans[k, 1]
        size += starts[form + 1] - starts[form] - (spans[k, 3] - spans[k, 2])
    out = np.empty(size, np.uint8)
    out_offsets = np.empty(len(offsets), np.int64)
    out_offsets[0] = 0
    read, written, k = offsets[0], 0, 0
    for document in range(len(offsets) - 1):
        while k < len(spans) and spans[k, 0] == document:
            form, start, end = spans[k, 1], spans[k, 2], spans[k, 3]
            written = _copy(data, read, start, out, written)
            written = _copy(literals, starts[form], starts[form + 1], out, written)
            read = end
            k += 1
        end = offsets[document + 1]
        written = _copy(data, read, end, out, written)
        read = end
        out_offsets[document + 1] = written
    return out, out_offsets


@kernel
def merge(
    offsets: np.ndarray, spans: np.ndarray, out_offsets: np.ndarray, found: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """`spans` and the spans `found` in the text that `replace` made of them, in bytes of the original; what
    `found` overlaps becomes part of it.
    """
    merged = np.empty((len(spans) + len(found), 4), np.int64)
    count, k, f = 0, 0, 0
    document, shift = -1, 0
    while k < len(spans) or f < len(found):
        row = min(
            spans[k, 0] if k < len(spans) else found[f, 0], found[f, 0] if f < len(found) else spans[k, 0]
        )
        if row != document:
            document, shift = row, out_offsets[row] - offsets[row]
        has_span = k < len(spans) and spans[k, 0] == document
        has_found = f < len(found) and found[f, 0] == document
        if has_span and not (
            has_found and found[f, 2] < spans[k, 2] + shift + starts[spans[k, 1] + 1] - starts[spans[k, 1]]
        ):
            for column in range(4):
                merged[count, column] = spans[k, column]
            count += 1
            shift += starts[spans[k, 1] + 1] - starts[spans[k, 1]] - (spans[k, 3] - spans[k, 2])
            k += 1
            continue
        form, out_start, out_end = found[f, 1], found[f, 2], found[f, 3]
        start, end = out_start - shift, out_end - shift
        while k < len(spans) and spans[k, 0] == document and spans[k, 2] + shift < out_end:
            width = starts[spans[k, 1] + 1] - starts[spans[k, 1]]
            literal_start = spans[k, 2] + shift
            if literal_start <= out_start:
                start = spans[k, 2]
                if literal_start + width == out_end and literal_start == out_start:
                    form = spans[k, 1]
            shift += width - (spans[k, 3] - spans[k, 2])
            end = max(out_end - shift, spans[k, 3])
            k += 1
        merged[count, 0], merged[count, 1], merged[count, 2], merged[count, 3] = document, form, start, end
        count += 1
        f += 1
    return merged[:count].copy()


@kernel
def in_characters(data: np.ndarray, offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """(start, end) of each span in characters from the start of its document."""
    result = np.empty((len(spans), 2), np.int64)
    document, position, characters = -1, 0, 0
    for k in range(len(spans)):
        if spans[k, 0] != document:
            document, characters = spans[k, 0], 0
            position = offsets[document]
        for edge in range(2):
            target = spans[k, 2 + edge]
            for i in range(position, target):
                characters += (data[i] & 0xC0) != 0x80
            position = target
            result[k, edge] = characters
    return result
