"""Writes a part of raw documents, and counts what the manifest says of it."""

import json
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.formats.unlearnable import UNREAD
from pipeline.store.draft import Draft
from pipeline.store.manifest import Part
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter
from pipeline.store.parts import Counts, add, text_bytes

MOST_UNREAD_KEYS = 20  # that are counted, of each batch


def write_part(draft: Draft, name: str, fingerprint: str, documents: Iterable[pa.RecordBatch]) -> Part:
    """The part of these documents, which the draft then has."""
    counts = {"documents": 0, "text_bytes": 0}
    with PartWriter(draft.path, name, {"documents": DOCUMENT_SCHEMA}) as writer:
        for batch in documents:
            writer.write("documents", batch)
            add(counts, _counts(batch))
    part = Part(name, fingerprint, writer.files, counts)
    draft.put(part)
    return part


def _counts(documents: pa.RecordBatch) -> Counts:
    """Documents, UTF-8 bytes of text, and for each unread key of messages how many conversations have it."""
    counts = {"documents": documents.num_rows, "text_bytes": text_bytes(documents)}
    metadata = documents.column("metadata")
    found = metadata.filter(pc.match_substring(metadata, f'"{UNREAD}":'))
    listed = (json.loads(one).get(UNREAD) for one in found.to_pylist())
    keys = Counter(str(key) for one in listed if isinstance(one, list) for key in one)
    return counts | {f"{UNREAD}/{key}": count for key, count in keys.most_common(MOST_UNREAD_KEYS)}
