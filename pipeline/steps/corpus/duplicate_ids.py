"""Duplicate ids within a corpus: the first document, by file name and row, keeps the id."""

from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline.steps.corpus.cutting import id_prefixes
from pipeline.steps.corpus.raw_part import write_part
from pipeline.steps.corpus.rejects import REJECTS_SCHEMA
from pipeline.store.draft import Draft
from pipeline.store.manifest import Part
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import tally

Place = tuple[str, int, int]  # of a document: its file, the number of the part, the row of the part


def set_aside_repeated_ids(draft: Draft, parts: Sequence[Part]) -> list[Part]:
    """The parts, which are in the order of their documents, without duplicate ids, and a part `repeated-ids`
    that lists what was set aside.

    A rewritten part has its own fingerprint, so it is read again when the corpus changes. Memory: 16 bytes
    per document.
    """
    holding = [part for part in parts if "documents" in part.files]
    suspects = _suspects(draft, holding)
    if not len(suspects):
        return list(parts)
    first: dict[str, Place] = {}
    for number, part in enumerate(holding):
        for place, document in _suspected(draft, number, part, suspects):
            first[document] = min(place, first.get(document, place))
    repeats: list[tuple[str, str]] = []
    rewritten = {
        part.name: _without_repeats(draft, number, part, suspects, first, repeats)
        for number, part in enumerate(holding)
    }
    listed = [_listed(draft, repeats, first)] if repeats else []
    return [*(rewritten.get(part.name, part) for part in parts), *listed]


def _suspects(draft: Draft, parts: Sequence[Part]) -> np.ndarray:
    """The leading 64 bits of more than one id, uint64 ascending: candidates, which whole ids decide."""
    ids = (batch for part in parts for batch in batches(draft.file(part, "documents"), ["id"]))
    prefixes = np.sort(np.concatenate([np.zeros(0, np.uint64), *map(id_prefixes, ids)]))
    return np.unique(prefixes[1:][prefixes[1:] == prefixes[:-1]])


def _suspected(draft: Draft, number: int, part: Part, suspects: np.ndarray) -> Iterator[tuple[Place, str]]:
    """The documents of a part whose ids may occur twice."""
    row = 0
    for batch in batches(draft.file(part, "documents"), ["id", "source"]):
        for index in map(int, np.flatnonzero(np.isin(id_prefixes(batch), suspects))):
            source, document = batch.column("source")[index].as_py(), batch.column("id")[index].as_py()
            yield (source, number, row + index), document
        row += batch.num_rows


def _without_repeats(
    draft: Draft,
    number: int,
    part: Part,
    suspects: np.ndarray,
    first: Mapping[str, Place],
    repeats: list[tuple[str, str]],
) -> Part:
    """`part`, or its replacement if it holds ids that belong to other documents: their files and ids are
    added to `repeats`.
    """
    found = _suspected(draft, number, part, suspects)
    repeated = {place[2]: (place[0], document) for place, document in found if first[document] != place}
    if not repeated:
        return part
    repeats += repeated.values()
    made_from = [part.fingerprint, *(document for _, document in repeated.values())]
    fingerprint = draft.work.part_fingerprint(made_from)
    return write_part(draft, part.name, fingerprint, _without_rows(draft, part, repeated))


def _without_rows(draft: Draft, part: Part, repeated: Container[int]) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches(draft.file(part, "documents")):
        yield batch.filter(pa.array([row + index not in repeated for index in range(batch.num_rows)]))
        row += batch.num_rows


def _listed(draft: Draft, repeats: Sequence[tuple[str, str]], first: Mapping[str, Place]) -> Part:
    """The part with the rejects."""
    why = "the document with the id {}, which the one in {} keeps"
    records = [
        {"file": source, "reason": "duplicate_id", "detail": why.format(document, first[document][0])}
        for source, document in repeats
    ]
    table = pa.RecordBatch.from_pylist(records, schema=REJECTS_SCHEMA)
    with PartWriter(draft.path, "repeated-ids", {"rejects": REJECTS_SCHEMA}) as writer:
        writer.write("rejects", table)
    counts = {"set_aside": len(repeats), **tally(table.column("reason"), "set_aside")}
    return Part("repeated-ids", draft.work.fingerprint, writer.files, counts)
