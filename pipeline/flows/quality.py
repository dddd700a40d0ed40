"""scrubbed -> quality: every signal once, then verdicts from thresholds. Changing a threshold does not measure again."""

from functools import partial
from pathlib import Path

import pyarrow.compute as pc

from pipeline.engine import Engine
from pipeline.errors import PipelineError
from pipeline.flows.parts import PartTask, add, derive, part_tasks, tally
from pipeline.parquet import PartWriter, batches
from pipeline.stages import quality
from pipeline.store import Part, Store, Version, Work


class AllRejectedError(PipelineError):
    """No document of a corpus passes."""


def judge(store: Store, engine: Engine, corpus: str, params: quality.QualityParams) -> Version:
    """The verdict on each document: table `verdicts` of corpora/<corpus>/quality, beside corpora/<corpus>/signals."""
    scrubbed = store.current(f"corpora/{corpus}/scrubbed")
    measuring = Work(f"corpora/{corpus}/signals", quality.VERSION, {}, {scrubbed.key: scrubbed.data_version})
    signals = derive(store, engine, measuring, part_tasks(measuring, [(scrubbed, "documents")]), _measure_part)
    judging = Work(f"corpora/{corpus}/quality", quality.VERSION, params, {signals.key: signals.data_version})
    verdicts = derive(store, engine, judging, part_tasks(judging, [(signals, "signals")]), partial(_judge_part, params=params))
    if not verdicts.counts["kept"]:
        raise AllRejectedError(
            f"quality rejects every document of corpus {corpus!r} ({_by_rule(verdicts)}): loosen these rules or choose another profile"
        )
    return verdicts


def examples(verdicts: Version, per_rule: int = 3) -> dict[str, str]:
    """The ids of the first documents that each rule rejects, by rule."""
    found: dict[str, list[str]] = {}
    for path in verdicts.files("verdicts"):
        for batch in batches(path):
            rejected = batch.filter(pc.invert(batch.column("keep")))
            for rule in rejected.column("rule").unique().to_pylist():
                ids = rejected.filter(pc.equal(rejected.column("rule"), rule)).column("id")
                found.setdefault(rule, []).extend(ids.slice(0, per_rule).to_pylist())
    return {rule: ", ".join(ids[:per_rule]) for rule, ids in found.items()}


def _by_rule(verdicts: Version) -> str:
    rejected = {name.partition("/")[2]: count for name, count in verdicts.counts.items() if name.startswith("rejected/")}
    return ", ".join(f"{rule}: {count}" for rule, count in sorted(rejected.items(), key=lambda item: -item[1]))


def _measure_part(task: PartTask, directory: Path) -> Part:
    with PartWriter(directory, task.name, {"signals": quality.SIGNALS_SCHEMA}) as writer:
        for batch in batches(task.inputs[0], ["id", "text"]):
            writer.write("signals", quality.measure(batch))
    return Part(task.name, task.fingerprint, writer.files, {"documents": writer.rows["signals"]})


def _judge_part(task: PartTask, directory: Path, params: quality.QualityParams) -> Part:
    counts = {"documents": 0, "kept": 0, "rejected": 0}
    with PartWriter(directory, task.name, {"verdicts": quality.VERDICTS_SCHEMA}) as writer:
        for batch in batches(task.inputs[0]):
            verdicts = quality.judge(batch, params)
            writer.write("verdicts", verdicts)
            kept = pc.sum(verdicts.column("keep")).as_py() or 0
            add(counts, {"documents": verdicts.num_rows, "kept": kept, "rejected": verdicts.num_rows - kept})
            add(counts, tally(verdicts.column("rule"), "rejected"))
    return Part(task.name, task.fingerprint, writer.files, counts)
