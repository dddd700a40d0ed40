"""Documents in; scrubbed documents and the replaced spans out."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.pii import rebuild
from pipeline.stages.pii.kinds import (
    DOCUMENT,
    END,
    EXAMPLES,
    KIND_OF_PATTERN,
    PATTERN,
    PLACEHOLDERS,
    SPANS_SCHEMA,
    START,
    PiiParams,
)
from pipeline.stages.pii.scan import find_spans
from pipeline.stages.text import utf8_arrays, utf8_column

_MAX_ROUNDS = 8
_REACH = 512  # bytes; no matcher reads farther from its trigger


def scrub(documents: pa.RecordBatch, params: PiiParams) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The documents with each value in `text` replaced, and a table of the spans (SPANS_SCHEMA).

    A span has its kind, `start` and `end` in characters of the original text, and never the value. Other
    columns are unchanged. Scrubbing the result again changes nothing. Time is linear in any text: a matcher
    reads a bounded number of bytes around its trigger, and replaced text is searched again at most 8 times.
    Raises ValueError if `id` or `text` is missing or of another type.
    """
    for name in ("id", "text"):
        if name not in documents.schema.names:
            raise ValueError(f"documents have no column {name!r}; they have {documents.schema.names}")
    field = documents.schema.field("text")
    if field.type not in (pa.large_string(), pa.string()):
        raise ValueError(f"column 'text' is {field.type}; cast it to large_string")
    data, offsets = utf8_arrays(documents.column("text"))
    data, offsets = data.view(), offsets.view()
    # one compiled version, whether or not the buffers are writable
    data.flags.writeable = offsets.flags.writeable = False
    wanted = np.array([kind in params.kinds for kind in KIND_OF_PATTERN])
    regions = np.stack([np.arange(documents.num_rows), offsets[:-1], offsets[1:]], axis=1)
    spans = find_spans(data, offsets, regions, wanted)
    if len(spans) == 0:
        return documents, pa.RecordBatch.from_pylist([], SPANS_SCHEMA)
    placeholders = PLACEHOLDERS if params.replacement == "placeholder" else EXAMPLES
    spans, text = _replace_all(data, offsets, spans, wanted, placeholders)
    text = text.cast(field.type)
    if documents.column("text").null_count:
        text = pc.if_else(documents.column("text").is_valid(), text, pa.scalar(None, field.type))
    characters = rebuild.in_characters(data, offsets, spans)
    table = pa.record_batch(
        [
            documents.column("id").take(pa.array(spans[:, DOCUMENT])).cast(pa.string()),
            pa.array(KIND_OF_PATTERN, pa.string()).take(pa.array(spans[:, PATTERN])),
            pa.array(characters[:, 0]),
            pa.array(characters[:, 1]),
        ],
        schema=SPANS_SCHEMA,
    )
    return documents.set_column(documents.schema.get_field_index("text"), field, text), table


def _replace_all(
    data: np.ndarray,
    offsets: np.ndarray,
    spans: np.ndarray,
    wanted: np.ndarray,
    placeholders: tuple[bytes, ...],
) -> tuple[np.ndarray, pa.Array]:
    """All spans and the scrubbed text: replaces, then searches around the replacements until nothing is
    found.

    Replacing one value can expose another that touched it. In nearly all text the second search finds none.
    """
    joined = np.frombuffer(b"".join(placeholders), dtype=np.uint8)
    starts = np.cumsum([0, *map(len, placeholders)])
    out, out_offsets = rebuild.replace(data, offsets, spans, joined, starts)
    is_new = np.ones(len(spans), np.bool_)
    for _ in range(_MAX_ROUNDS):
        out.flags.writeable = out_offsets.flags.writeable = False
        regions = _around(spans, is_new, offsets, out_offsets, np.diff(starts))
        found = find_spans(out, out_offsets, regions, wanted)
        if len(found) == 0:
            break
        merged = rebuild.merge(offsets, spans, out_offsets, found, starts)
        if np.array_equal(merged, spans):
            break
        is_new = ~np.isin(_records(merged), _records(spans))
        spans = merged
        out, out_offsets = rebuild.replace(data, offsets, spans, joined, starts)
    return spans, utf8_column(out, out_offsets)


def _around(
    spans: np.ndarray, is_new: np.ndarray, offsets: np.ndarray, out_offsets: np.ndarray, widths: np.ndarray
) -> np.ndarray:
    """Disjoint (document, start, end) of the scrubbed text within reach of the replacements of new spans."""
    document, width = spans[:, DOCUMENT], widths[spans[:, PATTERN]]
    growth = width - (spans[:, END] - spans[:, START])
    start = spans[:, START] - offsets[0] + np.cumsum(growth) - growth
    first = np.maximum(start - _REACH, out_offsets[document])[is_new]
    last = np.minimum(start + width + _REACH, out_offsets[document + 1])[is_new]
    first[1:] = np.maximum(first[1:], last[:-1])
    return np.stack([document[is_new], first, last], axis=1)


def _records(spans: np.ndarray) -> np.ndarray:
    """Each row as one value, for comparisons."""
    return spans.view([(name, np.int64) for name in ("document", "pattern", "start", "end")]).ravel()
