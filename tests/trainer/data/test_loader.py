"""Batches hold the windows that the order of samples names."""

from typing import Any

import numpy as np
import pytest

from trainer.config import RunConfig, TrainingConfig
from trainer.data.loader import TrainingData
from trainer.data.shards import Shard, TokenStream
from trainer.data.windows import PADDING


def test_a_batch_is_the_windows_of_its_step_cut_from_the_shards_end_to_end(config: RunConfig) -> None:
    data, length = TrainingData(config.data, config.training, config.run_dir), config.training.seq_len + 1
    corpora = [
        np.concatenate([Shard(prefix).tokens for prefix in corpus.train]) for corpus in config.data.corpora
    ]
    for step in (0, 7, 123_456_789):
        batch = data.batch(step, 0, 1)
        chosen, windows = data.order.windows(step * len(batch), len(batch))
        assert batch.dtype == np.int64
        assert set(chosen.tolist()) == {0, 1}
        for row, (corpus, window) in enumerate(zip(chosen, windows, strict=True)):
            start = window * config.training.seq_len
            assert batch[row].tolist() == corpora[corpus][start : start + length].tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"packing": "best_fit"},
        {"packing": "documents"},
        {"stages": [{"name": "a", "seq_len": 16, "share": 0.5}, {"name": "b"}]},
    ],
    ids=lambda changes: str(changes.get("packing", "stages")),
)
def test_what_a_sample_is_said_to_hold_is_what_its_row_holds(
    config: RunConfig, changes: dict[str, Any]
) -> None:
    training = TrainingConfig.model_validate(
        config.training.model_dump() | {"max_tokens": 256 * 100} | changes
    )
    data = TrainingData(config.data, training, config.run_dir)
    streams = {corpus.name: TokenStream(corpus.train) for corpus in config.data.corpora}
    rows = 0
    for step in range(100):
        first = training.curriculum.samples(step)
        for number, row in enumerate(data.batch(step, 0, 1), start=first):
            assert training.curriculum.step_reading(number) == step
            corpus, _, pieces = data.sample(number)
            held = np.concatenate([streams[corpus].window(begin, end - begin) for begin, end in pieces])
            tokens = np.where(row < 0, ~row, row)
            assert np.array_equal(tokens[: len(held)], held) and (row[len(held) :] == PADDING).all()
            rows += 1
    assert rows >= 800
