"""Documents in, scrubbed documents and the spans that were replaced out."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.pii import rebuild
from pipeline.stages.pii.kinds import EXAMPLES, KIND_OF_FORM, PLACEHOLDERS, SPANS_SCHEMA, PiiParams
from pipeline.stages.pii.scan import find_spans
from pipeline.stages.text import utf8_arrays, utf8_column

_MAX_ROUNDS = 8
_REACH = 512  # bytes; no matcher lets what is farther from its trigger decide about a value


def scrub(documents: pa.RecordBatch, params: PiiParams) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The documents with each value in `text` replaced, other columns untouched, and SPANS_SCHEMA: which kind
    was where, never the value.

    `start` and `end` count characters of the original text. Scrubbing the result again changes nothing. Time
    is linear in the text whatever it holds: every matcher reads a bounded number of bytes around its trigger,
    and what was replaced is looked at again at most 8 times. Raises ValueError if `id` or `text` is missing
    or of another type.
    """
    for name in ("id", "text"):
        if name not in documents.schema.names:
            raise ValueError(f"documents have no column {name!r}; they have {documents.schema.names}")
    field = documents.schema.field("text")
    if field.type not in (pa.large_string(), pa.string()):
        raise ValueError(f"column 'text' is {field.type}; cast it to large_string")
    data, offsets = utf8_arrays(documents.column("text"))
    data, offsets = data.view(), offsets.view()
    # one compiled specialisation, whatever the buffers allow
    data.flags.writeable = offsets.flags.writeable = False
    wanted = np.array([kind in params.kinds for kind in KIND_OF_FORM])
    whole = np.stack([np.arange(documents.num_rows), offsets[:-1], offsets[1:]], axis=1)
    spans = find_spans(data, offsets, whole, wanted)
    if len(spans) == 0:
        return documents, pa.RecordBatch.from_pylist([], SPANS_SCHEMA)
    spans, text = _settle(
        data, offsets, spans, wanted, PLACEHOLDERS if params.replacement == "placeholder" else EXAMPLES
    )
    text = text.cast(field.type)
    if documents.column("text").null_count:
        text = pc.if_else(documents.column("text").is_valid(), text, pa.scalar(None, field.type))
    characters = rebuild.in_characters(data, offsets, spans)
    table = pa.record_batch(
        [
            documents.column("id").take(pa.array(spans[:, 0])).cast(pa.string()),
            pa.array(KIND_OF_FORM, pa.string()).take(pa.array(spans[:, 1])),
            pa.array(characters[:, 0]),
            pa.array(characters[:, 1]),
        ],
        schema=SPANS_SCHEMA,
    )
    return documents.set_column(documents.schema.get_field_index("text"), field, text), table


def _settle(
    data: np.ndarray, offsets: np.ndarray, spans: np.ndarray, wanted: np.ndarray, literals: tuple[bytes, ...]
) -> tuple[np.ndarray, pa.Array]:
    """All spans and the scrubbed text: replace, look again around what was replaced, until nothing more
    is found.

    A value that stood against another one can come free when that one is replaced. The second look finds
    nothing in nearly all text.
    """
    literal_bytes, starts = (
        np.frombuffer(b"".join(literals), dtype=np.uint8),
        np.cumsum([0, *map(len, literals)]),
    )
    out, out_offsets = rebuild.replace(data, offsets, spans, literal_bytes, starts)
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
        out, out_offsets = rebuild.replace(data, offsets, spans, literal_bytes, starts)
    return spans, utf8_column(out, out_offsets)


def _around(
    spans: np.ndarray, is_new: np.ndarray, offsets: np.ndarray, out_offsets: np.ndarray, widths: np.ndarray
) -> np.ndarray:
    """Disjoint (document, start, end) of the scrubbed text within reach of the replacements of new spans."""
    document, width = spans[:, 0], widths[spans[:, 1]]
    growth = width - (spans[:, 3] - spans[:, 2])
    start = spans[:, 2] - offsets[0] + np.cumsum(growth) - growth
    first = np.maximum(start - _REACH, out_offsets[document])[is_new]
    last = np.minimum(start + width + _REACH, out_offsets[document + 1])[is_new]
    first[1:] = np.maximum(first[1:], last[:-1])
    return np.stack([document[is_new], first, last], axis=1)


def _records(spans: np.ndarray) -> np.ndarray:
    """Each row as one value that can be compared."""
    return spans.view([(name, np.int64) for name in ("document", "form", "start", "end")]).ravel()
