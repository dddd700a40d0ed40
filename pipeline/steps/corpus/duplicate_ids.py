"""Duplicate ids within a corpus: the first document, by file name and row, keeps the id."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline.steps.corpus.cutting import id_prefixes
from pipeline.steps.corpus.rejects import REJECTS_SCHEMA
from pipeline.store.draft import Draft
from pipeline.store.manifest import Part
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import add, tally, text_bytes

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
    rejects: list[pa.RecordBatch] = []
    rewritten = {
        part.name: _without_repeats(draft, number, part, suspects, first, rejects)
        for number, part in enumerate(holding)
    }
    return [*(rewritten.get(part.name, part) for part in parts), *_rejects_part(draft, rejects, first)]


def _suspects(draft: Draft, parts: Sequence[Part]) -> np.ndarray:
    """The leading 64 bits shared by more than one id, uint64 ascending. They find the candidates; whole ids
    decide.
    """
    prefixes = np.sort(
        np.concatenate(
            [
                np.zeros(0, np.uint64),
                *(id_prefixes(batch) for part in parts for batch in _id_batches(draft, part)),
            ]
        )
    )
    return np.unique(prefixes[1:][prefixes[1:] == prefixes[:-1]])


def _id_batches(draft: Draft, part: Part) -> list[pa.RecordBatch]:
    return list(batches(draft.file(part, "documents"), ["id"]))


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
    rejects: list[pa.RecordBatch],
) -> Part:
    """`part`, or its replacement if it holds an id that belongs to another document."""
    row = 0
    suspected = _suspected(draft, number, part, suspects)
    places = {place[2]: first[document] == place for place, document in suspected}
    if all(places.values()):
        return part
    kept: list[pa.RecordBatch] = []
    repeated: list[str] = []
    for batch in batches(draft.file(part, "documents")):
        keep = np.array([places.get(row + index, True) for index in range(batch.num_rows)], bool)
        row += batch.num_rows
        repeated += batch.column("id").filter(pa.array(~keep)).to_pylist()
        rejects.append(batch.select(["source", "id"]).filter(pa.array(~keep)))
        kept.append(batch.filter(pa.array(keep)))
    counts = {"documents": 0, "text_bytes": 0}
    with PartWriter(draft.path, part.name, {"documents": DOCUMENT_SCHEMA}) as writer:
        for batch in kept:
            writer.write("documents", batch)
            add(counts, {"documents": batch.num_rows, "text_bytes": text_bytes(batch)})
    replacement = Part(
        part.name, draft.work.part_fingerprint([part.fingerprint, *repeated]), writer.files, counts
    )
    draft.keep(replacement)
    return replacement


def _rejects_part(draft: Draft, rejects: Sequence[pa.RecordBatch], first: Mapping[str, Place]) -> list[Part]:
    rows = [
        (source, document)
        for batch in rejects
        for source, document in zip(
            batch.column("source").to_pylist(), batch.column("id").to_pylist(), strict=True
        )
    ]
    if not rows:
        return []
    detail = "the document with the id {}, which the one in {} keeps"
    records = [
        {
            "file": source,
            "row": None,
            "reason": "duplicate_id",
            "detail": detail.format(document, first[document][0]),
        }
        for source, document in rows
    ]
    table = pa.RecordBatch.from_pylist(records, schema=REJECTS_SCHEMA)
    with PartWriter(draft.path, "repeated-ids", {"rejects": REJECTS_SCHEMA}) as writer:
        writer.write("rejects", table)
    counts = {"set_aside": len(rows), **tally(table.column("reason"), "set_aside")}
    return [Part("repeated-ids", draft.work.fingerprint, writer.files, counts)]
