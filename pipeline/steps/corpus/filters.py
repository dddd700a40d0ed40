"""scrubbed -> filters/<name>: what the filters of the recipe's own measure, and their part in the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins.calling import FAILURES_SCHEMA, failures_table
from pipeline.plugins.filters import Filter
from pipeline.plugins.settings import OWN_SCORE, Entry, FastTextParams
from pipeline.recipe.recipe import Recipe
from pipeline.stages import quality
from pipeline.steps.corpus.user_code_stage import UserCodeStage
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from pipeline.store.params import anchored
from pipeline.store.parquet import read_table
from pipeline.store.parts import BatchResult, BatchStep, tally
from pipeline.store.store import Store

VERSION = "filter-1"
TABLE = "signals"
STEPS = 1 << 16
REASONS_SCHEMA = pa.schema([*quality.VERDICTS_SCHEMA, pa.field("reason", pa.string())])


@dataclass(frozen=True)
class Filtered(UserCodeStage):
    """What a filter measures of each document: tables `signals` and `failures`."""

    filter: Filter

    name = keys.FILTERS
    version = VERSION
    made_within = keys.quality(keys.ANY_CORPUS)

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, Filter(entry)) for entry in recipe.rules(corpus).quality.filters]

    @property
    def key(self) -> Key:
        return keys.filtered(self.corpus, self.filter.entry.name)

    @property
    def inputs(self) -> Sequence[Key]:
        model = [keys.QUALITY_MODEL] if self.filter.entry.python == OWN_SCORE else []
        return [self.documents, *model]

    @property
    def entries(self) -> Sequence[Entry]:
        return [self.filter.entry]

    @property
    def code_version(self) -> str:
        return f"{self.version} {self.filter.entry.version}"

    def settings(self, store: Store) -> Any:
        measured_with = self.filter.measured_with
        if isinstance(entry := _located(store, self.filter.entry), FastTextParams):
            measured_with["model"] = content(store, entry.file)
        return {"python": self.filter.entry.python, "params": measured_with}

    def step(self, store: Store) -> BatchStep:
        one = Filter(_located(store, self.filter.entry))
        schemas = {TABLE: one.schema, "failures": FAILURES_SCHEMA}
        return BatchStep(partial(_measure, filter=one), schemas, ("documents", "failed"))


def _located(store: Store, entry: Entry) -> Entry:
    """The entry; if it reads the recipe's own quality model, with the directory of that model."""
    if entry.python != OWN_SCORE:
        return entry
    return anchored(entry, store.current(keys.QUALITY_MODEL).directory())


def settled(store: Store, corpus: str, params: quality.QualityParams) -> quality.QualityParams:
    """The parameters with a `min` in place of each `top`: the least probability in that share of the
    documents, counted over those in the wanted languages.
    """
    filters = [_located(store, entry) for entry in params.filters]
    spoken = store.current(keys.languages(corpus)) if params.languages else None
    for place, entry in enumerate(filters):
        if isinstance(entry, FastTextParams) and entry.top:
            measured = store.current(keys.filtered(corpus, entry.name))
            made_from = [VERSION, *([spoken.data_version, params.languages] if spoken else [])]
            least = partial(_least, measured, entry.top, spoken, params.languages)
            update = {
                "min": max(entry.min, measured.report(f"top-{entry.top}", made_from, least)),
                "top": None,
            }
            filters[place] = entry.model_copy(update=update)
    return params.model_copy(update={"filters": tuple(filters)})


def _least(measured: Version, top: float, spoken: Version | None, languages: Sequence[str] | None) -> float:
    """The probability that the best `top` of the documents reach, to a 65,536th: so memory stays bounded."""
    counts = np.zeros(STEPS + 1, np.int64)
    for part in measured.parts:
        found = read_table(measured.file(part, TABLE), ["probability"]).column(0).to_numpy()
        if spoken:
            language = read_table(spoken.named(part.name, "languages"), ["language"]).column(0)
            found = found[pc.is_in(language, pa.array(languages)).to_numpy()]
        counts += np.bincount((found * STEPS).astype(int), minlength=len(counts))
    at_least = counts[::-1].cumsum()[::-1]
    return float(np.flatnonzero(at_least >= top * at_least[0])[-1]) / STEPS


def content(store: Store, model: Path) -> str:
    """The sha256 of a fastText classifier. Raises PipelineError."""
    try:
        return store.hashes.sha256(model)
    except OSError as error:
        raise PipelineError(
            f"{model} cannot be read: {error.strerror}; relative paths start at the recipe"
        ) from error


def _measure(documents: pa.RecordBatch, filter: Filter) -> BatchResult:
    signals, failures = filter.measure(documents)
    table = failures_table(failures)
    counts = {"documents": documents.num_rows, "failed": len(failures)}
    return {TABLE: signals, "failures": table}, counts | tally(table.column("name"), "failed")


def judging(built_in: BatchStep, filters: Sequence[Filter]) -> BatchStep:
    """A step that does what `built_in` does and then applies the filters in their order. It takes a table of
    each filter after the tables of `built_in`, and gives a reason with each verdict, and `failures`.
    """
    return BatchStep(
        partial(_judge, built_in=built_in, filters=filters),
        {"verdicts": REASONS_SCHEMA, "failures": FAILURES_SCHEMA},
        built_in.counted,
    )


def _judge(*tables: pa.RecordBatch, built_in: BatchStep, filters: Sequence[Filter]) -> BatchResult:
    own = len(tables) - len(filters)
    found, counts = built_in.function(*tables[:own])
    verdicts = found["verdicts"]
    keep = verdicts.column("keep").to_numpy(zero_copy_only=False).copy()
    rules = np.array(verdicts.column("rule").to_pylist(), dtype=object)
    reasons = np.full(len(keep), None, dtype=object)
    failures = []
    for one, measured in zip(filters, tables[own:], strict=True):
        verdict = one.judge(measured)
        failures += verdict.failures
        rejected = keep & (verdict.failed | ~verdict.keep)
        rules[rejected] = one.entry.name
        rules[rejected & verdict.failed] = failed_rule(one.entry.name)
        reasons[rejected] = np.array(verdict.reasons, dtype=object)[rejected]
        keep &= ~rejected
    columns = [verdicts.column("id"), keep, rules, reasons]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, REASONS_SCHEMA, strict=True)]
    verdicts = pa.RecordBatch.from_arrays(arrays, schema=REASONS_SCHEMA)
    table = failures_table(failures)
    kept = int(keep.sum())
    counts = {
        **{name: count for name, count in counts.items() if not name.startswith("rejected/")},
        "kept": kept,
        "rejected": len(keep) - kept,
        **tally(verdicts.column("rule"), "rejected"),
        **tally(table.column("name"), "failed"),
    }
    return {"verdicts": verdicts, "failures": table}, counts


def failed_rule(name: str) -> str:
    """The `rule` of a document that this filter's code failed on; no filter can have this name."""
    return f"{name}.error"
