"""With `packing: documents`, a run without a document goes on from the step before the first that read it."""

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.run.test_shared_states import from_scratch, reused, train
from tests.trainer.runs import outcome
from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.data.shard_writer import ShardWriter
from trainer.data.shards import Shard

STEP, STEPS = 256, 36
STAGES = [
    {"name": "short", "until_tokens": 12 * STEP, "seq_len": 16, "weights": {"prose": 1}},
    {"name": "both", "until_tokens": 24 * STEP},
    {"name": "code", "weights": {"prose": 1, "code": 3}},
]


@pytest.fixture
def settings(settings: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Runs of 36 steps that read more than an epoch of a corpus; each of their states stays on disk."""
    settings["runs"] = str(tmp_path / "runs")
    settings["training"] |= {
        "packing": "documents",
        "max_tokens": STEPS * STEP,
        "checkpoint": {"every_tokens": STEP // 2, "keep_last": 99},
        "evaluation": {"every_tokens": 12 * STEP, "micro_batch_size": 4},
    }
    return settings


def documents(corpus: dict[str, Any]) -> list[np.ndarray]:
    shards = map(Shard, map(Path, corpus["train"]))
    return [shard.document(number) for shard in shards for number in range(shard.num_documents)]


def holding(settings: dict[str, Any], corpus: int, text: list[np.ndarray], prefix: Path) -> dict[str, Any]:
    """The settings of a run whose corpus holds this text."""
    with ShardWriter(prefix, np.dtype("<u2")) as writer:
        for document in text:
            writer.add(document)
    corpora = [dict(one) for one in settings["data"]["corpora"]]
    corpora[corpus]["train"] = [str(prefix)]
    return {**settings, "data": {**settings["data"], "corpora": corpora}}


def first_read(settings: dict[str, Any], corpus: int, number: int, folder: Path) -> int:
    """The first step that reads a document, counted from 1, by going through all samples; 0 if none does."""
    config = RunConfig.model_validate({**settings, "run_dir": str(folder)})
    data, curriculum = TrainingData(config.data, config.training, folder), config.training.curriculum
    lengths = [len(one) for one in documents(settings["data"]["corpora"][corpus])]
    begin, end = sum(lengths[:number]), sum(lengths[: number + 1])
    for sample in range(curriculum.samples(curriculum.steps)):
        name, _, pieces = data.sample(sample)
        if name == data.order.names[corpus] and any(low < end and high > begin for low, high in pieces):
            return curriculum.step_reading(sample) + 1
    return 0


@pytest.mark.parametrize(
    "stages, removals",
    [
        pytest.param(STAGES, 3, id="three"),
        pytest.param([], 4, marks=pytest.mark.slow, id="one"),
        pytest.param([], 20, marks=pytest.mark.slow, id="20"),
    ],
)
def test_a_run_without_a_document_trains_from_the_first_step_that_read_it(
    settings: dict[str, Any], tmp_path: Path, stages: list[dict[str, Any]], removals: int
) -> None:
    settings["training"]["stages"] = stages
    train(settings, "all")
    chooser, steps = random.Random(removals), set()
    for removal in range(removals):
        corpus = removal % 2
        text = documents(settings["data"]["corpora"][corpus])
        gone = chooser.randrange(len(text))
        without = holding(settings, corpus, text[:gone] + text[gone + 1 :], tmp_path / f"without-{removal}")
        first = first_read(settings, corpus, gone, tmp_path / "asked")
        went_on, scratch = train(without, "without"), from_scratch(without, tmp_path / "alone")
        assert reused(went_on) == (first or STEPS) - 1
        assert outcome(went_on) == outcome(scratch)  # with its history
        steps.add(first)
        shutil.rmtree(went_on)
        shutil.rmtree(scratch)
    assert len(steps) > 2


def test_a_run_with_a_document_more_trains_from_the_first_step_that_reads_it(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    text = documents(settings["data"]["corpora"][0])
    train(holding(settings, 0, text[:-1], tmp_path / "before"), "before")
    more = holding(settings, 0, text, tmp_path / "more")
    first = first_read(more, 0, len(text) - 1, tmp_path / "asked")
    assert reused(train(more, "more")) == first - 1 > 0


def test_of_equal_documents_one_is_removed_and_the_weights_are_those_without_it(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    text = documents(settings["data"]["corpora"][1])
    train(holding(settings, 1, [*text, text[3], text[3]], tmp_path / "three"), "three")
    two = holding(settings, 1, [*text, text[3]], tmp_path / "two")
    went_on, scratch = train(two, "two"), from_scratch(two, tmp_path / "alone")
    assert reused(went_on) > 0 and outcome(went_on) == outcome(scratch)
