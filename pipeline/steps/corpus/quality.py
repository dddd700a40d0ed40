"""scrubbed -> quality: every signal once, then verdicts from thresholds. Changing a threshold does not
measure again.

Languages are detected only when a recipe names some, into a table of their own: naming others does not detect
again.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.compute as pc

from pipeline.stages import language, quality
from pipeline.store import keys
from pipeline.store.engine import Engine
from pipeline.store.errors import PipelineError
from pipeline.store.parquet import PartWriter, batches
from pipeline.store.parts import PartTask, add, derive, part_tasks, tally
from pipeline.store.versions import Part, Store, Version, Work

EXAMPLES = 3  # ids for each rule
REPORT = "examples-1"


class AllRejectedError(PipelineError):
    """No document of a corpus passes."""


def judge(store: Store, engine: Engine, corpus: str, params: quality.QualityParams) -> Version:
    """The verdict on each document: table `verdicts` of corpora/<corpus>/quality, beside
    corpora/<corpus>/signals and .../languages.
    """
    scrubbed = store.current(keys.scrubbed(corpus))
    measuring = Work(keys.signals(corpus), quality.VERSION, {}, {scrubbed.key: scrubbed.data_version})
    tables = [
        (
            derive(store, engine, measuring, part_tasks(measuring, [(scrubbed, "documents")]), _measure_part),
            "signals",
        )
    ]
    if params.languages is not None:
        detecting = Work(keys.languages(corpus), language.VERSION, {}, {scrubbed.key: scrubbed.data_version})
        tables.append(
            (
                derive(
                    store, engine, detecting, part_tasks(detecting, [(scrubbed, "documents")]), _detect_part
                ),
                "languages",
            )
        )
    judging = Work(
        keys.quality(corpus),
        quality.VERSION,
        params,
        {version.key: version.data_version for version, _ in tables},
    )
    verdicts = derive(
        store, engine, judging, part_tasks(judging, tables), partial(_judge_part, params=params)
    )
    if not verdicts.counts["kept"]:
        rules = ", ".join(f"{reason.rule}: {reason.documents}" for reason in reasons(verdicts)[1:])
        raise AllRejectedError(
            f"quality rejects every document of corpus {corpus!r} ({rules}): loosen these rules or choose "
            "another profile"
        )
    return verdicts


@dataclass(frozen=True)
class Reason:
    """How many documents of a corpus are kept (`rule` is None) or rejected by one rule, their share, and the
    ids of the first ones rejected.
    """

    rule: str | None
    documents: int
    share: float
    examples: tuple[str, ...] = ()


def reasons(verdicts: Version) -> list[Reason]:
    """What became of the documents of a corpus: kept, then the rules, most frequent first."""
    counts, examples = verdicts.counts, verdicts.report("examples", REPORT, lambda: _examples(verdicts))
    documents = max(counts["documents"], 1)
    rejected = sorted(_by_rule(verdicts).items(), key=lambda item: -item[1])
    return [
        Reason(None, counts["kept"], counts["kept"] / documents),
        *(Reason(rule, count, count / documents, tuple(examples[rule])) for rule, count in rejected),
    ]


def _examples(verdicts: Version) -> dict[str, list[str]]:
    """The ids of the first documents that each rule rejects, by rule."""
    found: dict[str, list[str]] = {rule: [] for rule in _by_rule(verdicts)}
    for path in verdicts.files("verdicts"):
        for batch in batches(path):
            for rule, ids in found.items():
                of_rule = batch.column("id").filter(pc.equal(batch.column("rule"), rule))
                ids.extend(of_rule.slice(0, EXAMPLES - len(ids)).to_pylist())
    return found


def _by_rule(verdicts: Version) -> dict[str, int]:
    return {
        name.partition("/")[2]: count
        for name, count in verdicts.counts.items()
        if name.startswith("rejected/")
    }


def _measure_part(task: PartTask, directory: Path) -> Part:
    with PartWriter(directory, task.name, {"signals": quality.SIGNALS_SCHEMA}) as writer:
        for batch in batches(task.inputs[0], ["id", "text"]):
            writer.write("signals", quality.measure(quality.with_plain_newlines(batch)))
    return Part(task.name, task.fingerprint, writer.files, {"documents": writer.rows["signals"]})


def _detect_part(task: PartTask, directory: Path) -> Part:
    with PartWriter(directory, task.name, {"languages": language.LANGUAGES_SCHEMA}) as writer:
        for batch in batches(task.inputs[0], ["id", "text"]):
            writer.write("languages", language.detect(batch))
    return Part(task.name, task.fingerprint, writer.files, {"documents": writer.rows["languages"]})


def _judge_part(task: PartTask, directory: Path, params: quality.QualityParams) -> Part:
    counts = {"documents": 0, "kept": 0, "rejected": 0}
    with PartWriter(directory, task.name, {"verdicts": quality.VERDICTS_SCHEMA}) as writer:
        # One batch of each table for each batch of documents.
        for signals, *languages in zip(*(batches(path) for path in task.inputs), strict=True):
            verdicts = quality.judge(signals, params, *languages)
            for detected in languages:
                add(counts, tally(detected.column("language"), "languages"))
            writer.write("verdicts", verdicts)
            kept = pc.sum(verdicts.column("keep")).as_py() or 0
            add(counts, {"documents": verdicts.num_rows, "kept": kept, "rejected": verdicts.num_rows - kept})
            add(counts, tally(verdicts.column("rule"), "rejected"))
    return Part(task.name, task.fingerprint, writer.files, counts)
