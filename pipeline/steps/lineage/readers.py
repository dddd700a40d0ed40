"""When training read a document, exactly: the inverse of the order of samples gives the steps that read a
window. If a run was resumed with another order of samples, the answer is that of the last order.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.steps.lineage.checkpoints import Checkpoint, LineageError, TrainedModel, checkpoints, run_config
from pipeline.steps.lineage.documents import CorpusText, texts_read
from pipeline.store import keys
from pipeline.store.keys import RUNS, Key
from pipeline.store.store import Store, StoreError
from pipeline.store.training_runs import run_histories
from trainer.config import RunConfig, TrainingConfig
from trainer.data.loader import TrainingData

FATES = 10  # documents whose fate is told


@dataclass(frozen=True)
class Training:
    """A training run, and when it read what. Steps count from 1, as in the names of checkpoints."""

    run: Path

    @cached_property
    def config(self) -> RunConfig:
        return run_config(self.run)

    @cached_property
    def data(self) -> TrainingData:
        return TrainingData(self.config.data, self.config.training, self.run / "packing")

    def steps(self, corpus: str, begin: int, end: int, until_step: int) -> np.ndarray:
        """The steps that read any of a corpus's tokens `begin` to `end` - 1, int64 [readings]."""
        if corpus not in self.data.order.names:
            return np.zeros(0, np.int64)
        number, curriculum = self.data.order.names.index(corpus), self.config.training.curriculum
        windows = self.data.holding(number, begin, end)
        _, samples = self.data.order.reads(number, windows, curriculum.samples(until_step))
        return np.array([curriculum.step_reading(sample) + 1 for sample in samples.tolist()], np.int64)


@dataclass(frozen=True)
class Reader:
    """A recipe or a checkpoint whose training text is asked for. `lineage` names the versions and the recipe.
    `training` read the text up to `step`. It is None for a recipe alone, and for an ancestor whose run is in
    no store that could be found. `through` describes the ancestor, where the reader is one of a checkpoint.
    """

    store: Store
    lineage: Mapping[str, Any]
    training: Training | None = None
    step: int = 0
    through: str | None = None

    def steps(self, corpus: str, text: CorpusText, holding: Mapping[str, list[str]]) -> list[np.ndarray]:
        """The steps that read the documents in `holding`, ids by part, of a corpus: an array for each group
        of neighbors.
        """
        assert self.training is not None
        ranges = text.ranges(holding)
        return [self.training.steps(corpus, *tokens, self.step) for tokens in ranges]


def readers(store: Store, checkpoint: Checkpoint) -> list[Reader]:
    """A checkpoint, and its ancestors: each by a run that read the same samples in the same order, in this
    store or in one where the weights still lie.
    """
    found = [Reader(store, checkpoint.lineage, Training(checkpoint.run), checkpoint.step)]
    stores, child = [store], checkpoint.lineage
    for ancestor in checkpoint.ancestors:
        started = child["training"]["config"].get("pretrained") or {}
        weights = Path(started.get("path") or "")
        parents = weights.resolve().parents if weights.is_absolute() else ()
        stores += [Store(parent) for parent in parents if (parent / RUNS).is_dir()]
        trainings = ((place, Training(run.path)) for place in stores for run in run_histories(place))
        alike = ((place, training) for place, training in trainings if _is_of(ancestor, training.config))
        child = ancestor.lineage
        place, training = next(alike, (store, None))
        found.append(Reader(place, child, training, child["training"]["step"], ancestor.described))
    return found


def _is_of(ancestor: TrainedModel, config: RunConfig) -> bool:
    """Whether a run with this configuration read what the ancestor read, in the same order."""
    return bool(config.lineage) and _order(config.lineage, config.training) == _order(
        ancestor.lineage, TrainingConfig.model_validate(ancestor.lineage["training"]["config"])
    )


def _order(lineage: Mapping[str, Any], training: TrainingConfig) -> Any:
    """What decides which samples are read, and when."""
    recipe, assets, read = lineage["recipe"], lineage["assets"], (keys.TOKENIZER, keys.TOKEN_SHARDS)
    return (
        {key: asset["data_version"] for key, asset in assets.items() if Key.from_path(key).stage in read},
        [(corpus["name"], corpus.get("weight")) for corpus in recipe["corpora"]],
        recipe.get("mixture"),
        {name: value for name, value in training.decisive.items() if name != "pretrained"},
    )


@dataclass(frozen=True)
class Reading:
    """How a checkpoint read some documents: at how many `steps` it read any of them, and the `first` and the
    `last` of these steps. They are steps of its own training, or of that of an ancestor, which `through`
    describes. `steps` is None where nobody can tell. `fates` says what happened to each document, where these
    are few.
    """

    checkpoint: str
    through: str | None
    steps: int | None
    first: int | None
    last: int | None
    fates: Mapping[str, str]


def readings(store: Store, documents: Collection[str]) -> Iterator[Reading]:
    """How each checkpoint on disk, and each of its ancestors, read these documents. `documents`: ids of the
    store, or of the source.
    """
    for reader, together in _readers_on_disk(store):
        steps, fates = _steps(reader, documents)
        for one in together:
            yield _reading(one, reader, steps, fates)


def readings_of_each(store: Store, documents: Collection[str]) -> dict[str, list[Reading]]:
    """For each of `documents` (ids of the store), how checkpoints read it. Checkpoints that did not are left
    out, unless nobody can tell.
    """
    found: dict[str, list[Reading]] = {document: [] for document in documents}
    for reader, together in _readers_on_disk(store):
        steps = _steps_of_each(reader, documents)
        for document in documents if steps is None else steps:
            read = None if steps is None else steps[document]
            readings = (_reading(one, reader, read, {}) for one in together)
            found[document] += [reading for reading in readings if reading.steps != 0]
    return found


def _readers_on_disk(store: Store) -> Iterator[tuple[Reader, list[Checkpoint]]]:
    """Each reader with the checkpoints that it stands for: those of a run that read the same text."""
    by_shards: dict[str, list[Checkpoint]] = defaultdict(list)
    for checkpoint in checkpoints(store):
        by_shards[f"{checkpoint.run} {checkpoint.lineage.get('assets')}"].append(checkpoint)
    for together in by_shards.values():
        for reader in readers(store, together[-1]):
            yield reader, together


def _reading(
    checkpoint: Checkpoint, reader: Reader, steps: np.ndarray | None, fates: Mapping[str, str]
) -> Reading:
    """What a checkpoint read, by the ascending steps at which its reader did."""
    if steps is None:
        return Reading(checkpoint.name, reader.through, None, None, None, fates)
    read = steps[steps <= (reader.step if reader.through else checkpoint.step)].tolist()
    first, last = (read[0], read[-1]) if read else (None, None)
    return Reading(checkpoint.name, reader.through, len(read), first, last, fates)


def _steps(reader: Reader, documents: Collection[str]) -> tuple[np.ndarray | None, dict[str, str]]:
    """The steps that read any of the documents, None when the run or its text is gone; and their fates."""
    if reader.training is None:
        return None, {}
    fates: dict[str, str] = {}
    found = [np.zeros(0, np.int64)]
    try:
        texts = texts_read(reader.store, reader.lineage)
        for corpus, text in texts.items():
            holding = text.holding(documents)
            fates |= text.fates(holding) if len(documents) <= FATES else {}
            found += reader.steps(corpus, text, holding)
    except (LineageError, StoreError, OSError):
        return None, {}
    return np.unique(np.concatenate(found)), fates


def _steps_of_each(reader: Reader, documents: Collection[str]) -> dict[str, np.ndarray] | None:
    """The steps that read each of the documents that any step read; None when the run or its text is gone."""
    if reader.training is None:
        return None
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    try:
        for corpus, text in texts_read(reader.store, reader.lineage).items():
            holding = text.holding(documents).items()
            for part, document in ((part, one) for part, ids in holding for one in ids):
                found[document] += reader.steps(corpus, text, {part: [document]})
    except (LineageError, StoreError, OSError):
        return None
    return {document: np.unique(np.concatenate(steps)) for document, steps in found.items() if steps}
