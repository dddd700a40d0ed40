"""Documents in; scrubbed documents and the replaced spans out."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.compiled import kernel
from pipeline.stages.pii import byte
from pipeline.stages.pii.kinds import (
    DOCUMENT,
    EMAIL,
    END,
    EXAMPLES,
    KIND_OF_PATTERN,
    PATTERN,
    PLACEHOLDERS,
    SPANS_SCHEMA,
    START,
    PiiParams,
)
from pipeline.stages.pii.own_patterns import own_spans
from pipeline.stages.pii.plain import PlainText
from pipeline.stages.pii.replaced import replaced
from pipeline.stages.pii.scan import find_spans
from pipeline.stages.text import utf8_arrays


def scrub(documents: pa.RecordBatch, params: PiiParams) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The documents with each value in `text` replaced, and a table of the spans (SPANS_SCHEMA).

    A span has its kind, `start` and `end` in characters of the original text, and never the value. Other
    columns are unchanged. Scrubbing the result again changes nothing. Time is linear in any text: a matcher
    reads a bounded number of bytes around its trigger, and so does the second look at what stands before a
    value.
    """
    text, spans = scrub_column(documents.column("text"), params)
    if len(spans) == 0:
        return documents, pa.RecordBatch.from_pylist([], SPANS_SCHEMA)
    characters = _in_characters(*_arrays(documents.column("text")), spans)
    kinds = [*KIND_OF_PATTERN, *(pattern.name for pattern in params.patterns)]
    table = pa.record_batch(
        [
            documents.column("id").take(pa.array(spans[:, DOCUMENT])).cast(pa.string()),
            pa.array(kinds, pa.string()).take(pa.array(spans[:, PATTERN])),
            pa.array(characters[:, 0]),
            pa.array(characters[:, 1]),
        ],
        schema=SPANS_SCHEMA,
    )
    place = documents.schema.get_field_index("text")
    return documents.set_column(place, documents.schema.field(place), text), table


def scrub_column(column: pa.Array, params: PiiParams) -> tuple[pa.Array, np.ndarray]:
    """The strings with each value replaced, of the same type, and the spans: rows of (row, pattern, first
    byte, byte after the last), bytes counted from the first string.
    """
    data, offsets = _arrays(column)
    spans = _find(column, data, offsets, params)
    if len(spans) == 0:
        return column, spans
    texts, ends = map(pa.py_buffer, replaced(data, offsets, spans, *byte.joined(replacements(params))))
    scrubbed = pa.Array.from_buffers(pa.large_string(), len(column), [None, ends, texts]).cast(column.type)
    if column.null_count:
        scrubbed = pc.if_else(column.is_valid(), scrubbed, pa.scalar(None, column.type))
    return scrubbed, spans


def replacements(params: PiiParams) -> tuple[bytes, ...]:
    """What is written for each pattern."""
    usual = PLACEHOLDERS if params.replacement == "placeholder" else EXAMPLES
    return usual + tuple(pattern.replacement for pattern in params.patterns)


def _arrays(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of the strings and their offsets from 0."""
    data, offsets = utf8_arrays(column)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _find(column: pa.Array, data: np.ndarray, offsets: np.ndarray, params: PiiParams) -> np.ndarray:
    """All spans but those of allowed values, ordered."""
    own = np.empty((0, 4), np.int64)
    if params.patterns:
        rows = own_spans(column, params.patterns, replacements(params))
        own = np.array(
            [
                (row, len(KIND_OF_PATTERN) + number, offsets[row] + start, offsets[row] + end)
                for row, number, start, end in rows
            ],
            np.int64,
        ).reshape(-1, 4)
    kept = [tuple(span) for span in own[:, START:]]
    if params.replacement == "format":  # an example is nobody's, and what stands beside it is no part of it
        found = re.finditer(b"|".join(map(re.escape, EXAMPLES)), data.tobytes())
        kept += [match.span() for match in found]
    plain = PlainText.of(_masked(data, kept) if kept else data, offsets)
    wanted = np.array([*(kind in params.kinds for kind in KIND_OF_PATTERN), params.ip == "all"])
    spans = plain.original(find_spans(plain.data, plain.offsets, wanted))
    if len(own):
        spans = np.concatenate([spans, own])
        spans = spans[np.argsort(spans[:, START], kind="stable")]
    allowed = {value.casefold() for value in params.allow}
    return spans[[not _is_allowed(data, span, allowed) for span in spans]] if allowed else spans


def _masked(data: np.ndarray, kept: list[tuple[int, int]]) -> np.ndarray:
    """A copy in which no matcher finds what is kept."""
    copy = data.copy()
    for start, end in kept:
        copy[start] = byte.OPENING_SQUARE
        copy[start + 1 : end] = byte.CLOSING_SQUARE
    copy.flags.writeable = False
    return copy


def _is_allowed(data: np.ndarray, span: np.ndarray, allowed: set[str]) -> bool:
    """Whether the value may stay, as it is written or as it is read."""
    written = data[span[START] : span[END]]
    read = PlainText.of(written, np.array([0, len(written)])).data
    values = {bytes(value).decode(errors="replace").casefold() for value in (written, read)}
    if values & allowed:
        return True
    if span[PATTERN] != EMAIL:
        return False
    domains = [value.rpartition("@")[2].split(".") for value in values]
    return any(".".join(labels[first:]) in allowed for labels in domains for first in range(len(labels)))


@kernel
def _in_characters(data: np.ndarray, offsets: np.ndarray, spans: np.ndarray) -> np.ndarray:
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
