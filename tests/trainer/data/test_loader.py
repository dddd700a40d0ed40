"""Batches hold the windows that the order of samples names."""

import numpy as np

from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.data.shards import Shard


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
