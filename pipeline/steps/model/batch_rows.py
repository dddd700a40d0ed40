"""The rows of the global batch of a step: which documents they hold, and their losses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tokenizers import Tokenizer

from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.lineage.documents import PlacedDocument, texts_read
from pipeline.steps.lineage.lineage_versions import tokenizer_of
from pipeline.steps.lineage.readers import Training
from pipeline.steps.model.recital import predicted
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from pipeline.store.training_runs import run_named
from trainer.data.windows import PADDING


@dataclass(frozen=True)
class Row:
    """A row of a global batch: the window of a corpus, the documents that it holds tokens of, its own text,
    and its loss under a checkpoint, if that was asked for.
    """

    row: int
    corpus: str
    window: int
    documents: Sequence[PlacedDocument]
    text: str
    loss: float | None = None


def _window_text(tokenizer: Tokenizer, window: np.ndarray) -> str:
    """The text of a window, the marks of documents among it."""
    tokens = window[window != PADDING]
    return tokenizer.decode(np.where(tokens < 0, ~tokens, tokens).tolist(), skip_special_tokens=False)


def global_batch_rows(store: Store, checkpoint: Checkpoint, step: int, losses: bool) -> tuple[list[Row], str]:
    """The rows of the global batch of a step (from 1) of a checkpoint's run. With `losses`, each row has its
    loss under the newest checkpoint before the step, and the highest loss comes first. Returns the name of
    that checkpoint, too, else an empty one.

    Raises PipelineError for a step outside of the run, or when no checkpoint before it is on disk.
    """
    training, texts = Training(checkpoint.run), texts_read(store, checkpoint.lineage)
    for text in texts.values():
        _ = text.train_shards  # fetched
    curriculum, steps = training.config.training.curriculum, training.config.training.steps
    if not 0 < step <= steps:
        raise PipelineError(f"run {checkpoint.run.name} has steps 1 to {steps}, not {step}")
    rows, ids = [], training.data.batch(step - 1, 0, 1)
    tokenizer = tokenizer_of(store, checkpoint.lineage["assets"])
    for row, number in enumerate(range(curriculum.samples(step - 1), curriculum.samples(step))):
        sample = training.data.sample(number)
        held = (one for begin, end in sample.pieces for one in texts[sample.corpus].between(begin, end))
        written = _window_text(tokenizer, ids[row])
        rows.append(Row(row, sample.corpus, sample.window, list(dict.fromkeys(held)), written))
    if not losses:
        return rows, ""
    saved = run_named(store, checkpoint.run.name).checkpoints()
    before = [path for at, path in saved.items() if at < step]
    if not before:
        raise PipelineError(
            f"no checkpoint before step {step} of run {checkpoint.run.name} is on disk: leave out --losses"
        )
    model = store.files.fetch_folder(before[-1])
    found = predicted(model, ids, 1)
    scored = [replace(row, loss=one["loss"]) for row, one in zip(rows, found, strict=True)]
    return sorted(scored, key=lambda row: -(row.loss or 0.0)), model.name
