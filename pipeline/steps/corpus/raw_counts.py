"""What the manifest says of a part of raw documents."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.formats.unlearnable import UNREAD
from pipeline.store.parts import Counts, text_bytes

MOST_UNREAD_KEYS = 20  # that are counted, of each batch


def raw_counts(documents: pa.RecordBatch) -> Counts:
    """Documents, UTF-8 bytes of text, and for each unread key of messages how many conversations have it."""
    counts = {"documents": documents.num_rows, "text_bytes": text_bytes(documents)}
    metadata = documents.column("metadata")
    found = metadata.filter(pc.match_substring(metadata, f'"{UNREAD}":'))
    listed = (json.loads(one).get(UNREAD) for one in found.to_pylist())
    keys = Counter(str(key) for one in listed if isinstance(one, list) for key in one)
    return counts | {f"{UNREAD}/{key}": count for key, count in keys.most_common(MOST_UNREAD_KEYS)}
