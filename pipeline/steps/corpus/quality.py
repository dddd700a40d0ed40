"""scrubbed -> quality: measures every signal once, then judges by thresholds.

Changing a threshold measures nothing again. Languages are detected only if the recipe names some, in a table
of their own, so naming other languages detects nothing again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins.filters import Filter
from pipeline.recipe.recipe import Recipe
from pipeline.stages import fasttext, language, quality
from pipeline.stages.quality import by_language
from pipeline.steps.corpus.filters import TABLE, Filtered, content, judging, settled
from pipeline.steps.corpus.user_code_stage import FailureLimits, own_code
from pipeline.steps.stage import BatchStage, CorpusStage, Page
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import Version, breakdown
from pipeline.store.parts import BatchResult, BatchStep, Counts, derive, part_tasks, tally
from pipeline.store.store import Store
from pipeline.store.work import Work


@dataclass(frozen=True)
class Signals(BatchStage):
    """Table `signals`: what the rules judge by."""

    name = "signals"
    version = quality.VERSION
    made_within = keys.quality(keys.ANY_CORPUS)

    def step(self, store: Store) -> BatchStep:
        return BatchStep(_measure, {"signals": quality.SIGNALS_SCHEMA}, columns=["id", "text"])


def _measure(documents: pa.RecordBatch) -> BatchResult:
    signals = quality.measure(quality.with_plain_newlines(documents))
    return {"signals": signals}, {"documents": documents.num_rows}


@dataclass(frozen=True)
class Languages(BatchStage):
    """Table `languages`, by the fastText model in a file or, without one, by py3langid."""

    model: Path | None

    name = "languages"
    version = language.VERSION
    made_within = keys.quality(keys.ANY_CORPUS)

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        rules = recipe.rules(corpus).quality
        return [cls(corpus, rules.language_file)] if rules.detects else []

    @property
    def code_version(self) -> str:
        return fasttext.VERSION if self.model else self.version

    def settings(self, store: Store) -> Any:
        return {"model": content(store, self.model)} if self.model else {}

    def step(self, store: Store) -> BatchStep:
        schemas = {"languages": language.LANGUAGES_SCHEMA}
        return BatchStep(partial(_detect, model=self.model), schemas, columns=["id", "text"])


def _detect(documents: pa.RecordBatch, model: Path | None) -> BatchResult:
    return {"languages": language.detect(documents, model)}, {"documents": documents.num_rows}


@dataclass(frozen=True)
class Quality(CorpusStage):
    """The verdict on each document: table `verdicts`. `has_model`: whether the recipe has a `quality_model`,
    which the filter of a variant may read.
    """

    params: quality.QualityParams
    has_model: bool = False

    name = "quality"
    version = quality.VERSION
    page = Page(
        "The Gopher, C4, FineWeb and plain signals of each document, and its verdict with the first rule "
        "that it fails.",
        numbers={"kept": "kept", "rejected": "rejected"},
    )

    @classmethod
    def of(cls, recipe: Recipe, corpus: str) -> Sequence[Self]:
        return [cls(corpus, recipe.rules(corpus).quality, recipe.quality_model is not None)]

    @property
    def scheduled_after(self) -> Sequence[Key]:
        return [keys.QUALITY_MODEL] if self.has_model else []

    @property
    def measured(self) -> Sequence[BatchStage]:
        """What the verdicts are made from, in the order in which rules judge."""
        languages = [Languages(self.corpus, self.params.language_file)] if self.params.detects else []
        filters = (Filtered(self.corpus, Filter(entry)) for entry in self.params.filters)
        return [Signals(self.corpus), *languages, *filters]

    @property
    def inputs(self) -> Sequence[Key]:
        return [stage.key for stage in self.measured]

    def work(self, store: Store) -> Work:
        params = settled(store, self.corpus, self.params)
        filters = [Filter(entry).identity for entry in params.filters]
        settings = {**params.model_dump(), "filters": filters} if filters else params
        version = f"{self.version} {by_language.VERSION}" if params.by_language else self.version
        return Work(self.key, version, settings, store.data_versions(self.inputs))

    def make(self, store: Store, engine: Engine) -> Version:
        """Raises PipelineError without a kept document, and PluginError when a filter fails too often."""
        if self.params.language_file and self.params.languages:
            language.check(self.params.language_file, self.params.languages)
        tables = [(stage.make(store, engine), _table(stage)) for stage in self.measured]
        params = settled(store, self.corpus, self.params)
        work = self.work(store)
        limits = FailureLimits(self.corpus, tables[0][0].counts["documents"], params.filters)
        tasks, write = part_tasks(work, tables), _judging(params).write_part
        own = own_code(entry for entry in params.filters if Filter(entry).judges_later)
        verdicts = derive(store, engine, work, tasks, write, watch=limits.watch, own=own)
        limits.check(verdicts.parts, verdicts)
        if not verdicts.counts["kept"]:
            rejected = reasons(verdicts)[1:]
            rules = ", ".join(f"{reason.rule}: {reason.documents}" for reason in rejected)
            foreign = any(is_of_english(self.params, reason.rule) for reason in rejected)
            raise PipelineError(
                f"quality rejects every document of corpus {self.corpus!r} ({rules}): loosen these rules or "
                "choose another profile"
                + (", or set `by_language: true` if the text is not in English" if foreign else "")
            )
        return verdicts

    def judged_again(self, store: Store, part: str) -> pa.Table:
        """`id, rule` of the documents of a part, by these rules and what has been measured."""
        step = _judging(settled(store, self.corpus, self.params))
        inputs = [store.current(stage.key).named(part, _table(stage)) for stage in self.measured]
        found = [result["verdicts"] for result, _ in step.results(inputs)]
        return pa.Table.from_batches(found, step.schemas["verdicts"]).select(["id", "rule"])


def _table(stage: BatchStage) -> str:
    """The table that is judged by."""
    return "languages" if isinstance(stage, Languages) else TABLE


@dataclass(frozen=True)
class Rejection:
    """The documents that are kept (`rule` is None) or that a rule rejects: number and shares."""

    rule: str | None
    documents: int
    share: float
    share_of_bytes: float


def reasons(verdicts: Version) -> list[Rejection]:
    """The kept documents of a corpus, then those rejected by each rule, most frequent first."""
    counts, sizes = verdicts.counts, breakdown(verdicts.counts, "rejected_bytes")
    whole, size = max(counts["documents"], 1), max(counts.get("text_bytes", 0), 1)
    kept = Rejection(None, counts["kept"], counts["kept"] / whole, counts.get("kept_bytes", 0) / size)
    rejected = breakdown(counts, "rejected").items()
    return [kept, *(Rejection(rule, number, number / whole, sizes[rule] / size) for rule, number in rejected)]


def is_of_english(params: quality.QualityParams, rule: str | None) -> bool:
    """Whether the rule judges text of all languages as English, although other languages differ in it."""
    return rule is not None and not params.by_language and by_language.depends(rule)


def judging_documents(params: quality.QualityParams) -> BatchStep:
    """Measures and judges in one step, without storing signals for other thresholds.

    The table `verdicts` also holds the language (if `params` name languages) and every signal.
    """
    beside = [*([language.LANGUAGES_SCHEMA] if params.detects else []), quality.SIGNALS_SCHEMA]
    fields = (field for schema in beside for field in schema if field.name != "id")
    schema = pa.schema([*quality.VERDICTS_SCHEMA, *fields])
    return BatchStep(partial(_judge_documents, params=params, schema=schema), {"verdicts": schema})


def _judge_documents(
    documents: pa.RecordBatch, params: quality.QualityParams, schema: pa.Schema
) -> BatchResult:
    tables = dict(_measure(documents)[0])
    if params.detects:
        tables |= _detect(documents, params.language_file)[0]
    verdicts, counts = _judge(*tables.values(), params=params)
    found = {
        name: column
        for table in (*tables.values(), *verdicts.values())
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    joined = pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)
    return {"verdicts": joined}, counts


def _judge(signals: pa.RecordBatch, *languages: pa.RecordBatch, params: quality.QualityParams) -> BatchResult:
    verdicts = quality.judge(signals, params, *languages)
    kept = pc.sum(verdicts.column("keep")).as_py() or 0
    counts: Counts = {"documents": verdicts.num_rows, "kept": kept, "rejected": verdicts.num_rows - kept}
    for detected in languages:
        counts |= tally(detected.column("language"), "languages")
    return {"verdicts": verdicts}, counts | tally(verdicts.column("rule"), "rejected")


def _with_bytes(
    signals: pa.RecordBatch, *others: pa.RecordBatch, judge: Callable[..., BatchResult]
) -> BatchResult:
    """What `judge` returns, and the bytes of text that are kept and that each rule rejects, as counts."""
    tables, counts = judge(signals, *others)
    table = pa.table({"rule": tables["verdicts"].column("rule"), "size": signals.column("bytes")})
    sizes = {
        f"rejected_bytes/{row['rule']}" if row["rule"] else "kept_bytes": row["size_sum"]
        for row in table.group_by("rule").aggregate([("size", "sum")]).to_pylist()
    }
    return tables, counts | {"text_bytes": sum(sizes.values()), **dict(sorted(sizes.items()))}


def _judging(params: quality.QualityParams) -> BatchStep:
    """Takes the tables of `measured` in their order."""
    schemas = {"verdicts": quality.VERDICTS_SCHEMA}
    built_in = BatchStep(
        partial(_judge, params=params), schemas, ("documents", "kept", "rejected", "text_bytes", "kept_bytes")
    )
    filters = [Filter(entry) for entry in params.filters]
    step = judging(built_in, filters) if filters else built_in
    return replace(step, function=partial(_with_bytes, judge=step.function))
