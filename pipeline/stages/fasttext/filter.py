"""A fastText classifier as a filter of a recipe: `{name: ..., fasttext: ..., label: ..., min: ...}`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.plugins import batch_filter
from pipeline.stages.fasttext.model import read_model
from pipeline.stages.fasttext.scores import VERSION, scores
from pipeline.store.errors import PipelineError, did_you_mean

LABELS_SHOWN = 10


@batch_filter(signals={"probability": float})
class Probability:
    """Measures the probability of one label. Raises PipelineError for a label that the model lacks."""

    version = VERSION

    def __init__(self, model: str, label: str):
        self.model = read_model(Path(model))
        if label not in self.model.labels:
            some = f"it has {' '.join(self.model.labels[:LABELS_SHOWN])}"
            hint = did_you_mean(label, self.model.labels, some)
            raise PipelineError(f"{model} has no label {label!r}: {hint}")
        self.column = self.model.labels.index(label)

    def signals(self, documents: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {"probability": scores(self.model, documents.column("text"))[:, self.column]}

    def keep(self, signals: Mapping[str, np.ndarray], min: float) -> np.ndarray:
        return signals["probability"] >= min
