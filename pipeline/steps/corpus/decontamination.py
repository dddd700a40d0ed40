"""Finds the documents that quote an evaluation set: kept documents -> corpora/<name>/contamination."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins.transforms import Transform
from pipeline.recipe.evaluation import Decontamination, EvaluationSet
from pipeline.stages import decontamination, pii
from pipeline.steps.corpus.ingest import collect
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.files import StoredFile
from pipeline.store.manifest import File, Part, Version
from pipeline.store.params import required
from pipeline.store.parquet import PartWriter, batches, kept_batches
from pipeline.store.parts import PartTask, add, derive, part_tasks, tally
from pipeline.store.store import Store
from pipeline.store.work import Work

REASON, STOCK_PHRASES = "contaminated", "stock_phrases"
PART_BYTES = 128_000_000
VERDICTS_SCHEMA = required(id=pa.string(), keep=pa.bool_())


class DecontaminationError(PipelineError):
    """An evaluation set cannot be compared with documents."""


def index(
    store: Store,
    engine: Engine,
    params: Decontamination,
    scrubs: Sequence[pii.PiiParams],
    chains: Sequence[Sequence[Transform]] = (),
) -> Version:
    """The n-grams of all sets.

    Evaluation texts are scrubbed in each way in which documents are, and also rewritten by each of the
    `chains` of transforms: otherwise a quote that contains an address, or that a transform changes, would
    not be found.
    """
    versions = [collect(store, engine, set_name(one), one.source, PART_BYTES) for one in params.sets]
    names = [one.name for one in params.sets]
    work = index_work(store, params, scrubs, chains)
    with store.making(work) as draft:
        if isinstance(draft, Version):
            return draft
        found = decontamination.ngrams(_texts(versions, scrubs, chains), params.ngrams)
        _check_none_is_empty(names, np.bincount(found.sets, minlength=len(names)), params)
        path = draft.path / "ngrams.arrow"
        lists = [pa.LargeListArray.from_arrays([0, len(column)], pa.array(column)) for column in found]
        table = pa.table(lists, names=list(found._fields))
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        counts = {"ngrams": len(found.hashes)}
        for name, version in zip(names, versions, strict=True):
            counts[f"documents/{name}"] = version.counts["documents"]
        files = {"ngrams": File.of(path, draft.path)}
        return draft.publish([Part("ngrams", work.fingerprint, files, counts)])


def index_work(
    store: Store,
    params: Decontamination,
    scrubs: Sequence[pii.PiiParams],
    chains: Sequence[Sequence[Transform]],
) -> Work:
    names, (scrub, *others) = [one.name for one in params.sets], scrubs
    settings: dict[str, Any] = {"ngrams": params.ngrams, "scrub": scrub, "sets": names}
    if others:
        settings["other scrubs"] = others
    if chains:
        settings["transforms"] = [[one.identity for one in chain] for chain in chains]
    inputs = store.data_versions(keys.raw(set_name(one)) for one in params.sets)
    return Work(keys.EVALUATION_NGRAMS, f"{decontamination.INDEX_VERSION} {pii.VERSION}", settings, inputs)


def set_name(one: EvaluationSet) -> str:
    """The name that a set has in the store in place of a corpus. A corpus has no '.' in its name, so that a
    set may be called like one.
    """
    return f"evaluation.{one.name}"


def _check_none_is_empty(names: Sequence[str], ngrams: np.ndarray, params: Decontamination) -> None:
    for name, count in zip(names, ngrams.tolist(), strict=True):
        if not count:
            raise DecontaminationError(
                f"evaluation set {name!r} has no text of {params.min_words} words or more: name the column "
                "that holds its text, or lower decontamination.min_words"
            )


def _texts(
    versions: Sequence[Version], scrubs: Sequence[pii.PiiParams], chains: Sequence[Sequence[Transform]]
) -> Iterator[tuple[int, pa.Array]]:
    for number, version in enumerate(versions):
        for path in version.files("documents"):
            for batch in batches(path):
                for chain in ((), *chains):
                    documents = batch
                    for one in chain:
                        documents, _ = one.apply(documents)
                    for params in scrubs:
                        yield number, pii.scrub(documents, params)[0].column("text")


def find(store: Store, engine: Engine, corpus: str, params: Decontamination) -> Version:
    """Tables `contamination`, what documents share with a set, and `verdicts`, which keeps the documents that
    share no more than stock phrases.
    """
    scrubbed, quality, ngrams = map(store.current, (*keys.judged(corpus), keys.EVALUATION_NGRAMS))
    work = find_work(store, corpus, params)
    names = [one.name for one in params.sets]
    tasks = part_tasks(work, [(scrubbed, "documents"), (quality, "verdicts")])
    return derive(
        store, engine, work, tasks, _Search(ngrams.only("ngrams"), tuple(names), params.stock_phrase)
    )


def find_work(store: Store, corpus: str, params: Decontamination) -> Work:
    inputs = store.data_versions([*keys.judged(corpus), keys.EVALUATION_NGRAMS])
    names = [one.name for one in params.sets]
    # All of the n-grams concern each part.
    settings = {"sets": names, "ngrams": inputs[keys.EVALUATION_NGRAMS], "stock_phrase": params.stock_phrase}
    return Work(keys.contamination(corpus), decontamination.VERSION, settings, inputs)


@dataclass(frozen=True)
class _Search:
    """Looks for the n-grams in one part."""

    ngrams: StoredFile
    names: tuple[str, ...]
    stock_phrase: int

    def __call__(self, task: PartTask, directory: Path) -> Part:
        against = _loaded(self.ngrams)
        documents = kept_batches(task.inputs[0], list(task.inputs[1:]), ["id", "text"])
        part = [decontamination.shared(batch, against) for batch in documents]
        hits = decontamination.contamination(part, against, list(self.names), self.stock_phrase)
        quotes = hits.filter(hits.column("quote"))
        counts = {"documents": 0, REASON: 0, **{f"{REASON}/{name}": 0 for name in self.names}}
        counts[STOCK_PHRASES] = pc.count_distinct(hits.column("id")).as_py()
        with PartWriter(
            directory, task.name, {"contamination": decontamination.HITS_SCHEMA, "verdicts": VERDICTS_SCHEMA}
        ) as writer:
            writer.write("contamination", hits)
            for ids in (one.ids for one in part):
                clean = pc.invert(pc.is_in(ids, value_set=quotes.column("id")))
                writer.write("verdicts", pa.record_batch([ids, clean], VERDICTS_SCHEMA))
                contaminated = len(ids) - (pc.sum(clean).as_py() or 0)
                add(counts, {"documents": len(ids), REASON: contaminated, STOCK_PHRASES: -contaminated})
        add(counts, tally(quotes.column("set"), REASON))
        return Part(task.name, task.fingerprint, writer.files, counts)


@lru_cache(maxsize=1)
def _loaded(ngrams: StoredFile) -> decontamination.PreparedNgrams:
    """The n-grams, memory-mapped and prepared once per process."""
    batch = pa.ipc.open_file(pa.memory_map(os.fspath(ngrams))).get_batch(0)
    columns = {name: np.asarray(batch.column(name).values) for name in decontamination.Ngrams._fields}
    return decontamination.prepared(decontamination.Ngrams(**columns))
