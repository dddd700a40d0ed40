"""Finds the documents that quote an evaluation set: kept documents -> corpora/<name>/contamination."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins.transforms import Transform
from pipeline.recipe.evaluation import Decontamination
from pipeline.recipe.recipe import Recipe
from pipeline.stages import decontamination, pii
from pipeline.steps.corpus.ingest import Raw
from pipeline.steps.stage import CorpusStage, DataStage, Page
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.files import StoredFile
from pipeline.store.keys import Key
from pipeline.store.manifest import File, Part, Version
from pipeline.store.params import required
from pipeline.store.parquet import PartWriter, all_batches, kept_batches
from pipeline.store.parts import PartTask, add, derive, part_tasks, tally
from pipeline.store.store import Store
from pipeline.store.work import Work

REASON, STOCK_PHRASES = "contaminated", "stock_phrases"
VERDICTS_SCHEMA = required(id=pa.string(), keep=pa.bool_())


@dataclass(frozen=True)
class EvaluationNgrams(DataStage):
    """The n-grams of all evaluation sets.

    Evaluation texts are scrubbed in each way in which documents are, and also rewritten by each of the
    `chains` of transforms: otherwise a quote that contains an address, or that a transform changes, would
    not be found.
    """

    params: Decontamination
    scrubs: Sequence[pii.PiiParams]
    chains: Sequence[Sequence[Transform]]

    name = keys.EVALUATION_NGRAMS
    version = decontamination.INDEX_VERSION
    page = Page(
        "The word n-grams of the evaluation sets, which are then searched for in the corpora.",
        kinds=("numba",),
        group="all_corpora",
        numbers={"n-grams": "ngrams"},
        breakdowns={"documents by set": ("documents", "set")},
    )

    @classmethod
    def all_of(cls, recipe: Recipe) -> Sequence[Self]:
        params = recipe.decontamination
        return [cls(params, recipe.scrubs, recipe.transform_chains)] if params else []

    @property
    def raws(self) -> Sequence[Raw]:
        """The sets as their sources deliver them. A corpus has no '.' in its name, so that a set may be
        called like one.
        """
        return [Raw(f"evaluation.{one.name}", one.source) for one in self.params.sets]

    def work(self, store: Store) -> Work:
        scrub, *others = self.scrubs
        names = [one.name for one in self.params.sets]
        settings: dict[str, Any] = {"ngrams": self.params.ngrams, "scrub": scrub, "sets": names}
        if others:
            settings["other scrubs"] = others
        if self.chains:
            settings["transforms"] = [[one.identity for one in chain] for chain in self.chains]
        inputs = store.data_versions(raw.key for raw in self.raws)
        return Work(self.key, f"{self.version} {pii.VERSION}", settings, inputs)

    def make(self, store: Store, engine: Engine) -> Version:
        """Raises PipelineError for a set without a text that is long enough."""
        versions = [raw.make(store, engine) for raw in self.raws]
        names = [one.name for one in self.params.sets]
        with store.making(self.work(store)) as draft:
            if isinstance(draft, Version):
                return draft
            texts = _texts(versions, self.scrubs, self.chains)
            found = decontamination.ngrams(texts, self.params.ngrams)
            _check_none_is_empty(names, np.bincount(found.sets, minlength=len(names)), self.params)
            path = draft.path / "ngrams.arrow"
            lists = [pa.LargeListArray.from_arrays([0, len(column)], pa.array(column)) for column in found]
            table = pa.table(lists, names=list(found._fields))
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
            counts = {"ngrams": len(found.hashes)}
            for name, version in zip(names, versions, strict=True):
                counts[f"documents/{name}"] = version.counts["documents"]
            files = {"ngrams": File.of(path, draft.path)}
            return draft.publish([Part("ngrams", draft.work.fingerprint, files, counts)])


@dataclass(frozen=True)
class Contamination(CorpusStage):
    """`contamination` has what documents share with a set; `verdicts` keeps those with stock phrases only."""

    params: Decontamination

    name = "contamination"
    version = decontamination.VERSION
    page = Page(
        "The documents that share a run of words with an evaluation set: which set, which words and where, "
        "and whether they are a quote or a stock phrase.",
        numbers={"contaminated": REASON, "with stock phrases only": STOCK_PHRASES},
        breakdowns={"contaminated by set": (REASON, "set")},
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, recipe.decontamination)] if recipe.decontamination else []

    @property
    def inputs(self) -> Sequence[Key]:
        return [*keys.judged(self.corpus), keys.EVALUATION_NGRAMS]

    def work(self, store: Store) -> Work:
        inputs = store.data_versions(self.inputs)
        names = [one.name for one in self.params.sets]
        settings = {
            "sets": names,
            "ngrams": inputs[keys.EVALUATION_NGRAMS],  # all of the n-grams concern each part
            "stock_phrase": self.params.stock_phrase,
        }
        return Work(self.key, self.version, settings, inputs)

    def make(self, store: Store, engine: Engine) -> Version:
        scrubbed, quality, ngrams = map(store.current, self.inputs)
        work = self.work(store)
        names = tuple(one.name for one in self.params.sets)
        tasks = part_tasks(work, [(scrubbed, "documents"), (quality, "verdicts")])
        search = _Search(ngrams.only("ngrams"), names, self.params.stock_phrase)
        return derive(store, engine, work, tasks, search)


def _check_none_is_empty(names: Sequence[str], ngrams: np.ndarray, params: Decontamination) -> None:
    for name, count in zip(names, ngrams.tolist(), strict=True):
        if not count:
            raise PipelineError(
                f"evaluation set {name!r} has no text of {params.min_words} words or more: name the column "
                "that holds its text, or lower decontamination.min_words"
            )


def _texts(
    versions: Sequence[Version], scrubs: Sequence[pii.PiiParams], chains: Sequence[Sequence[Transform]]
) -> Iterator[tuple[int, pa.Array]]:
    """The texts of each set, with its number, in each way in which they are transformed and scrubbed."""
    for number, version in enumerate(versions):
        for batch in all_batches(version, "documents"):
            for chain in ((), *chains):
                documents = reduce(lambda read, transform: transform.apply(read)[0], chain, batch)
                yield from ((number, pii.scrub(documents, params)[0].column("text")) for params in scrubs)


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
