"""URL and metadata scrubbed like the text: counted, without a table of spans."""

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.stages.pii.kinds import DOCUMENT, END, PATTERN, START, PiiParams
from pipeline.stages.pii.scrub import replacements, scrub_column

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+')  # of JSON: a string, a number, true, false, null

Span = tuple[int, int, bytes]  # first byte, byte after the last, what replaces them


def scrub_fields(documents: pa.RecordBatch, params: PiiParams) -> tuple[pa.RecordBatch, dict[str, int]]:
    """The documents with each value in `url` and `metadata` replaced, and how many were, by column.

    Metadata stays the JSON that it was: a value in a string or in a key gives way to its placeholder, a
    number becomes a string. The names of the keys count as words near a value.
    """
    urls, in_urls = scrub_column(documents.column("url"), params)
    metadata, in_metadata = _metadata(documents.column("metadata"), params)
    for name, column in (("url", urls), ("metadata", metadata)):
        place = documents.schema.get_field_index(name)
        documents = documents.set_column(place, documents.schema.field(place), column)
    return documents, {"url": len(in_urls), "metadata": in_metadata}


def _metadata(column: pa.Array, params: PiiParams) -> tuple[pa.Array, int]:
    scrubbed, spans = scrub_column(column, params)
    if len(spans) == 0:
        return column, 0
    rows = scrubbed.to_pylist()
    starts = np.concatenate([[0], np.cumsum(pc.fill_null(pc.binary_length(column), 0).to_numpy())])
    placeholders = replacements(params)
    for row, group in groupby(spans.tolist(), key=itemgetter(DOCUMENT)):
        found = [
            (span[START] - starts[row], span[END] - starts[row], placeholders[span[PATTERN]])
            for span in group
        ]
        text = column[row].as_py().encode()
        if _is_json(text):
            inside = _in_json(text, found, whole=False)
            rows[row] = (inside if _is_json(inside) else _in_json(text, found, whole=True)).decode()
    return pa.array(rows, column.type), len(spans)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _in_json(text: bytes, spans: list[Span], whole: bool) -> bytes:
    """The JSON with each span replaced in the strings it touches, or the `whole` strings; never structure."""
    pieces, written = [], 0
    for start, end, placeholder in _in_tokens(text, spans, whole):
        if start >= written:
            pieces += [text[written:start], placeholder]
            written = end
    return b"".join([*pieces, text[written:]])


def _in_tokens(text: bytes, spans: list[Span], whole: bool) -> Iterator[Span]:
    """Each span cut to the inside of a string, or widened to a number, which becomes a string."""
    k = 0
    for token in _TOKEN.finditer(text):
        while k < len(spans) and spans[k][1] <= token.start():
            k += 1
        for start, end, placeholder in spans[k:]:
            if start >= token.end():
                break
            if token[0].startswith(b'"'):
                inside = token.start() + 1, token.end() - 1
                yield *(inside if whole else (max(start, inside[0]), min(end, inside[1]))), placeholder
            else:
                yield *token.span(), b'"' + placeholder + b'"'
