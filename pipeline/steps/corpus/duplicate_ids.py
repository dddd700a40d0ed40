"""Duplicate ids within a corpus: the first document keeps the id, later ones are set aside."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.steps.corpus.rejects import REJECTS_SCHEMA
from pipeline.store.params import DOCUMENT_SCHEMA
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import add, tally, text_bytes
from pipeline.store.versions import Draft, Part

HEX_DIGITS = 16  # the leading 64 bits of an id find the candidates; whole ids decide


def set_aside_repeated_ids(draft: Draft, parts: Sequence[Part]) -> list[Part]:
    """The parts without duplicate ids, and a part `repeated-ids` that lists what was set aside.


    A rewritten part has its own fingerprint, so it is read again when the corpus changes. Memory: 16 bytes
    per document.
    """
    holding = sorted((part for part in parts if "documents" in part.files), key=lambda part: part.name)
    suspects = _suspects(draft, holding)
    if not len(suspects):
        return list(parts)
    seen: set[str] = set()
    rejects: list[pa.RecordBatch] = []
    rewritten = {part.name: _without_repeats(draft, part, suspects, seen, rejects) for part in holding}
    return [*(rewritten.get(part.name, part) for part in parts), *_rejects_part(draft, rejects)]


def _suspects(draft: Draft, parts: Sequence[Part]) -> np.ndarray:
    """The leading 64 bits shared by more than one id, uint64 ascending."""
    prefixes = np.sort(
        np.concatenate(
            [
                np.zeros(0, np.uint64),
                *(_prefixes(batch) for part in parts for batch in _id_batches(draft, part)),
            ]
        )
    )
    return np.unique(prefixes[1:][prefixes[1:] == prefixes[:-1]])


def _id_batches(draft: Draft, part: Part) -> list[pa.RecordBatch]:
    return list(batches(draft.path / part.files["documents"].path, ["id"]))


def _prefixes(batch: pa.RecordBatch) -> np.ndarray:
    digits = "".join(pc.utf8_slice_codeunits(batch.column("id"), 0, HEX_DIGITS).to_pylist())
    return np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64)


def _without_repeats(
    draft: Draft, part: Part, suspects: np.ndarray, seen: set[str], rejects: list[pa.RecordBatch]
) -> Part:
    """`part`, or its replacement if it holds an id in `seen`. Adds the suspected ids of the part to
    `seen`.
    """
    kept: list[pa.RecordBatch] = []
    repeated: list[str] = []
    for batch in batches(draft.path / part.files["documents"].path):
        keep = np.ones(batch.num_rows, bool)
        for row in np.flatnonzero(np.isin(_prefixes(batch), suspects)):
            document = batch.column("id")[int(row)].as_py()
            keep[row] = document not in seen
            seen.add(document)
        repeated += batch.column("id").filter(pa.array(~keep)).to_pylist()
        rejects.append(batch.select(["source", "id"]).filter(pa.array(~keep)))
        kept.append(batch.filter(pa.array(keep)))
    if not repeated:
        return part
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


def _rejects_part(draft: Draft, rejects: Sequence[pa.RecordBatch]) -> list[Part]:
    rows = [
        (source, document)
        for batch in rejects
        for source, document in zip(
            batch.column("source").to_pylist(), batch.column("id").to_pylist(), strict=True
        )
    ]
    if not rows:
        return []
    detail = "the id {} occurs in an earlier file of the corpus"
    records = [
        {"file": source, "row": None, "reason": "duplicate_id", "detail": detail.format(document)}
        for source, document in rows
    ]
    table = pa.RecordBatch.from_pylist(records, schema=REJECTS_SCHEMA)
    with PartWriter(draft.path, "repeated-ids", {"rejects": REJECTS_SCHEMA}) as writer:
        writer.write("rejects", table)
    counts = {"set_aside": len(rows), **tally(table.column("reason"), "set_aside")}
    return [Part("repeated-ids", draft.work.fingerprint, writer.files, counts)]
