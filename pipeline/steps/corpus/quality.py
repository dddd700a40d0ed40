"""scrubbed -> quality: measures every signal once, then judges by thresholds.

Changing a threshold measures nothing again. Languages are detected only if the recipe names some, in a table
of their own, so naming other languages detects nothing again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.plugins.filters import Filter
from pipeline.stages import fasttext, language, quality
from pipeline.stages.quality import by_language
from pipeline.steps.corpus import filters as filtering
from pipeline.steps.corpus.failures import FailureLimits
from pipeline.steps.corpus.text_table import TextTable
from pipeline.store import keys
from pipeline.store.engines.local import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import Version, breakdown
from pipeline.store.parts import BatchResult, BatchStep, Counts, derive, part_tasks, tally
from pipeline.store.store import Store
from pipeline.store.work import Work


class AllRejectedError(PipelineError):
    """No document of a corpus passes the quality rules."""


def judge(store: Store, engine: Engine, corpus: str, params: quality.QualityParams) -> Version:
    """The verdict on each document: table `verdicts` of corpora/<corpus>/quality. Makes
    corpora/<corpus>/signals first and, where `params` name them, .../languages and .../filters/<name>.

    Raises AllRejectedError when no document passes, and PluginError when a filter of the recipe cannot be
    loaded or fails on more documents than allowed.
    """
    tables = [(SIGNALS.make(store, engine, corpus), "signals")]
    if params.detects:
        if params.language_file and params.languages:
            language.check(params.language_file, params.languages)
        tables.append((languages(store, params.language_file).make(store, engine, corpus), "languages"))
    for entry in params.filters:
        tables.append((filtering.measure(store, engine, corpus, Filter(entry)), filtering.TABLE))
    params = filtering.settled(store, corpus, params)
    work = judge_work(store, corpus, params)
    limits = FailureLimits(corpus, tables[0][0].counts["documents"], params.filters)
    verdicts = derive(
        store, engine, work, part_tasks(work, tables), _judging(params).write_part, limits.watch
    )
    limits.check(verdicts.parts, verdicts)
    if not verdicts.counts["kept"]:
        rules = ", ".join(f"{reason.rule}: {reason.documents}" for reason in reasons(verdicts)[1:])
        raise AllRejectedError(
            f"quality rejects every document of corpus {corpus!r} ({rules}): loosen these rules or choose "
            "another profile"
        )
    return verdicts


@dataclass(frozen=True)
class Rejection:
    """The documents of a corpus that are kept (`rule` is None) or that one rule rejects: their number, and
    their shares of the documents and of the bytes of text.
    """

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


def judge_work(store: Store, corpus: str, params: quality.QualityParams) -> Work:
    params = filtering.settled(store, corpus, params)
    filters = [Filter(entry).identity for entry in params.filters]
    settings = {**params.model_dump(), "filters": filters} if filters else params
    inputs = store.data_versions(measured(corpus, params))
    version = f"{quality.VERSION} {by_language.VERSION}" if params.by_language else quality.VERSION
    return Work(keys.quality(corpus), version, settings, inputs)


def languages(store: Store, model: Path | None) -> TextTable:
    """The languages by a fastText model, or by py3langid."""
    schemas = {"languages": language.LANGUAGES_SCHEMA}
    if model is None:
        return TextTable("languages", language.VERSION, _detect, schemas)
    params = {"model": filtering.content(store, model)}
    return TextTable("languages", fasttext.VERSION, partial(_detect, model=model), schemas, params)


def measured(corpus: str, params: quality.QualityParams) -> list[str]:
    """The keys of the tables that the verdicts are made from."""
    languages = [keys.languages(corpus)] if params.detects else []
    return [keys.signals(corpus), *languages, *(keys.filtered(corpus, one.name) for one in params.filters)]


def judge_again(store: Store, rules: Mapping[str, quality.QualityParams], corpus: str, part: str) -> pa.Table:
    """`id, rule` of the documents of a part, judged by other rules on what has been measured."""
    tables, params = {keys.languages(corpus): "languages"}, filtering.settled(store, corpus, rules[corpus])
    inputs = [store.current(key).named(part, tables.get(key, "signals")) for key in measured(corpus, params)]
    step = _judging(params)
    found = [result["verdicts"] for result, _ in step.results(inputs)]
    return pa.Table.from_batches(found, step.schemas["verdicts"]).select(["id", "rule"])


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


def _measure(documents: pa.RecordBatch) -> BatchResult:
    signals = quality.measure(quality.with_plain_newlines(documents))
    return {"signals": signals}, {"documents": documents.num_rows}


def _detect(documents: pa.RecordBatch, model: Path | None = None) -> BatchResult:
    return {"languages": language.detect(documents, model)}, {"documents": documents.num_rows}


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
    """With the bytes of text that are kept, and rejected by each rule."""
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
    step = filtering.judging(built_in, filters) if filters else built_in
    return replace(step, function=partial(_with_bytes, judge=step.function))


SIGNALS = TextTable("signals", quality.VERSION, _measure, {"signals": quality.SIGNALS_SCHEMA})
