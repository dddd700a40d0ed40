"""Batches hold the windows that the order of samples names."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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


@pytest.mark.parametrize("packing", ["windows", "best_fit", "documents"])
def test_a_global_batch_is_the_same_on_any_number_of_processes(config: RunConfig, packing: str) -> None:
    data = TrainingData(config.data, config.with_training(packing=packing).training, config.run_dir)
    for step in (0, 5, 1000):
        alone = data.batch(step, 0, 1)
        for processes in (2, 4, 8):
            together = [data.batch(step, rank, processes) for rank in range(processes)]
            assert np.array_equal(alone, np.concatenate(together))


@pytest.mark.parametrize(("packing", "epochs"), [("best_fit", 0), ("documents", 1)])
def test_who_asks_at_once_gets_one_index_and_a_damaged_one_is_made_again(
    config: RunConfig, tmp_path: Path, packing: str, epochs: int
) -> None:
    training = config.with_training(packing=packing).training

    def batch(_: int) -> bytes:
        return TrainingData(config.data, training, tmp_path / "index").batch(0, 0, 1).tobytes()

    with ThreadPoolExecutor(4) as pool:
        (sound,) = set(pool.map(batch, range(4)))
    corpora = [path for path in (tmp_path / "index").iterdir() if path.is_dir()]
    assert len(corpora) == 2 and [len([*path.glob("epoch-*")]) for path in corpora] == [epochs] * 2
    facts, sizes = corpora[0] / "index.json", corpora[0] / "lengths.i32"
    wrong = json.dumps(dict.fromkeys(json.loads(facts.read_text()), 10**6)).encode()
    for file, content in ((facts, wrong), (sizes, b"\0" * 8)):
        whole = file.read_bytes()
        file.write_bytes(content)
        assert batch(0) == sound and file.read_bytes() == whole


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
