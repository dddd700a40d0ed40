"""scrubbed -> signals: what the quality rules judge by, measured once for any thresholds."""

from dataclasses import dataclass

import pyarrow as pa

from pipeline.stages import quality
from pipeline.steps.stage import BatchStage
from pipeline.store import keys
from pipeline.store.parts import BatchResult, BatchStep
from pipeline.store.store import Store


@dataclass(frozen=True)
class Signals(BatchStage):
    """Table `signals`."""

    name = "signals"
    version = quality.VERSION
    made_within = keys.quality(keys.ANY_CORPUS)

    def step(self, store: Store) -> BatchStep:
        return BatchStep(measure, {"signals": quality.SIGNALS_SCHEMA}, columns=["id", "text"])


def measure(documents: pa.RecordBatch) -> BatchResult:
    """The signals of each document."""
    signals = quality.measure(quality.with_plain_newlines(documents))
    return {"signals": signals}, {"documents": documents.num_rows}
