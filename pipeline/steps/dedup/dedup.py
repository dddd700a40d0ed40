"""The documents of all corpora -> dedup: one decision for each, with its evidence.

Incremental: signatures, their sorted runs, verified clusters and the decisions of each part are reused where
nothing changed. A change costs the signatures of the changed parts, one pass over the runs (396 bytes for
each document), and the text of the clusters that it touches. Memory: up to 8 million documents 24 bytes for
each; beyond, this process holds names of files and counts.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.recipe.recipe import Recipe
from pipeline.stages import dedup
from pipeline.steps.corpus import decontamination
from pipeline.steps.dedup import verification
from pipeline.steps.dedup.candidates import link
from pipeline.steps.dedup.clusters import Layout, find_clusters
from pipeline.steps.dedup.shuffle import Slice, divide
from pipeline.steps.dedup.signatures import Signatures, SignedPart, laid_out
from pipeline.steps.stage import DataStage, Page
from pipeline.store import keys
from pipeline.store.draft import Draft
from pipeline.store.engines.local import Engine
from pipeline.store.keys import Key
from pipeline.store.manifest import Part, Version
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import add, put_parts, tally
from pipeline.store.store import Store
from pipeline.store.work import Work

EXCLUDED = "excluded"  # the reason for documents of a corpus that is not trained on
DUPLICATES_OF = "duplicates_of"  # the counts of removed duplicates by the corpus of the document that stays


@dataclass(frozen=True)
class Dedup(DataStage):
    """The table `decisions`, with one part for each part of each corpus. Of duplicates the document of the
    earlier corpus stays, then the longer one, then the one with the smaller id.

    If contaminated documents are removed, they are removed first, so that they remove no duplicates. The
    other documents of a corpus that is not compared all stay. Documents of the `excluded` corpora are removed
    last, after their duplicates in the others.
    """

    params: dedup.DedupParams
    corpora: Sequence[Signatures]
    excluded: Sequence[str]

    name = keys.DEDUP
    version = dedup.VERSION
    page = Page(
        "Exact and near duplicates across all corpora. MinHash-LSH finds candidates; a document is removed "
        "only after its exact Jaccard similarity was computed.",
        group="all_corpora",
        numbers={"kept": "kept", "removed": "removed"},
        breakdowns={"removed by reason": ("removed", "reason")},
    )

    @classmethod
    def all_of(cls, recipe: Recipe) -> Sequence[Self]:
        return [cls(recipe.dedup, list(Signatures.all_of(recipe)), recipe.excluded)]

    @property
    def inputs(self) -> Sequence[Key]:
        return [stage.key for stage in self.corpora]

    def work(self, store: Store) -> Work:
        inputs = store.data_versions(self.inputs)
        if self.excluded:
            inputs[EXCLUDED] = ", ".join(self.excluded)
        # The order decides which of two duplicates stays. It is an input, not a setting: when a corpus is
        # added, most parts keep their fingerprint.
        order = ", ".join(stage.corpus for stage in self.corpora)
        return Work(self.key, self.version, self.params, {"corpora in order": order, **inputs})

    def make(self, store: Store, engine: Engine) -> Version:
        versions = [stage.make(store, engine) for stage in self.corpora]
        with store.making(self.work(store)) as draft:
            if isinstance(draft, Version):
                if evidence := verification.latest(store, self.params):
                    store.use(evidence)  # so that gc keeps it
                return draft
            corpora = {stage.corpus: stage.sources(store) for stage in self.corpora}
            store.check(*(version for tables in corpora.values() for version, _ in tables))
            signed = laid_out(corpora, versions)
            starts = np.array([piece.start for piece in signed], np.int64)
            with draft.scratch(engine.apart) as scratch:
                layout = Layout(starts, tuple(corpora), scratch)
                clusters = find_clusters(engine, layout, *link(engine, signed, scratch, self.params))
                decided = verification.Verifier(engine, signed, layout, clusters, self.params).verify(store)
                decided += clusters.decided
                by_part, size = divide(engine, scratch, decided, layout.bits, what="dedup decisions")
                numbered = zip(signed, by_part, strict=False)
                tasks = [_Decisions(piece, rows, piece.corpus in self.excluded) for piece, rows in numbered]
                parts = _parts(draft, engine, tasks, size)
            return draft.publish(parts)


def _parts(draft: Draft, engine: Engine, tasks: Sequence["_Decisions"], size: int) -> list[Part]:
    """Makes the parts without reusable decisions. `size`: bytes of the decisions on linked documents."""
    tasks = sorted(tasks, key=lambda task: keys.DecidedPart(task.piece.corpus, "").name)
    parts: dict[str, Part | None] = {}
    todo = []
    hashed = engine.map(_Decisions.sha256, tasks, input_bytes=size, what="dedup decisions")
    for task, sha256 in zip(tasks, hashed, strict=True):
        piece = task.piece
        inputs = [piece.part.fingerprint, piece.part.files["signatures"].sha256, sha256]
        inputs += [EXCLUDED] if task.without else []
        fingerprint = draft.work.part_fingerprint(inputs)
        parts[piece.name] = draft.finished(piece.name, fingerprint)
        if parts[piece.name] is None:
            todo.append(replace(task, fingerprint=fingerprint))
    input_bytes = sum(task.piece.part.files["signatures"].bytes for task in todo)
    write = partial(put_parts, function=_Decisions.part, directory=draft.path, files=draft.store.files)
    for part in engine.map(write, todo, input_bytes=input_bytes, what="dedup decisions"):
        draft.keep(part)
        parts[part.name] = part
    return [part for part in parts.values() if part is not None]


@dataclass(frozen=True)
class _Decisions:
    """The decisions on one part. `rows` are those on its linked documents, with the corpus of the survivor
    as `home`. `without` says that none of its documents is trained on.
    """

    piece: SignedPart
    rows: Slice
    without: bool
    fingerprint: str = ""

    def decided(self) -> pa.RecordBatch:
        """Ascending by row. Local rows: the content of a part does not depend on the parts before it."""
        decided = self.rows.read().sort_by("row").drop_columns("key")
        return decided.set_column(0, "row", pc.subtract(decided.column("row"), self.piece.start))

    def sha256(self) -> str:
        decided = self.decided()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, decided.schema) as writer:
            writer.write_batch(decided)
        return hashlib.sha256(sink.getvalue()).hexdigest()

    def part(self, directory: Path) -> Part:
        """Writes the table, one row group for each row group of the signatures."""
        counts = {"documents": 0, "kept": 0, "removed": 0}
        start, decided = 0, self.decided()
        with PartWriter(directory, self.piece.name, {"decisions": dedup.DECISION_SCHEMA}) as writer:
            for batch in batches(self.piece.signatures, ["id"]):
                decisions = dedup.decisions(batch.column("id"), decided, start)
                if self.without:
                    decisions = dedup.excluded(decisions, EXCLUDED)
                self._write(writer, counts, decisions)
                start += batch.num_rows
            for verdicts in self.piece.sources[2:]:
                for batch in batches(verdicts):
                    ids = batch.filter(pc.invert(batch.column("keep"))).column("id")
                    self._write(writer, counts, dedup.without_comparison(ids, decontamination.REASON))
        removed = decided.filter(pc.invert(decided.column("keep")))
        add(counts, tally(removed.column("home"), DUPLICATES_OF))
        return Part(self.piece.name, self.fingerprint, writer.files, counts)

    def _write(self, writer: PartWriter, counts: dict[str, int], decisions: pa.RecordBatch) -> None:
        writer.write("decisions", decisions)
        kept = pc.sum(decisions.column("keep")).as_py() or 0
        add(counts, {"documents": decisions.num_rows, "kept": kept, "removed": decisions.num_rows - kept})
        add(counts, tally(decisions.column("reason"), "removed"))
