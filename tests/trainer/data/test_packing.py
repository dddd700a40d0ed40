"""Best-fit packing: whole documents in rows, every token predicted once an epoch, nothing predicted across a
cut, padding not counted.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.models import small
from tests.trainer.shards import write_shard
from tests.trainer.steps import new_session, step
from trainer.config import RunConfig
from trainer.data import shards
from trainer.data.held_out import held_out
from trainer.data.loader import TrainingData
from trainer.data.packing.bestfit import pack
from trainer.data.packing.packed_rows import PackedRows
from trainer.data.shards import TokenStream, idx_path
from trainer.data.windows import PADDING
from trainer.run.batch import Batch
from trainer.run.objectives import loss_sum

BOT, EOT = 2, 3


def write(prefix: Path, lengths: list[int], seed: int = 0) -> None:
    """Documents of these lengths, [BOT] and [EOT] included."""
    chooser = np.random.default_rng(seed)
    write_shard(prefix, ([BOT, *chooser.integers(10, 300, length - 2), EOT] for length in lengths))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=80), st.integers(1, 20))
def test_every_token_but_a_documents_first_is_predicted_once_and_what_fits_is_whole(
    lengths: list[int], seq_len: int
) -> None:
    lengths_array = np.array(lengths, np.int32)
    starts = np.cumsum(lengths_array, dtype=np.int64) - lengths_array
    rows = pack(starts, lengths_array, seq_len)
    first_piece = np.concatenate([[0], rows.ends])[:-1]
    assert (rows.ends > first_piece).all() and rows.ends[-1:].tolist() == [len(rows.starts)][: len(rows.ends)]
    for first, end in zip(first_piece, rows.ends, strict=True):
        assert rows.lengths[first:end].sum() <= seq_len + 1

    predicted = np.zeros(lengths_array.sum(), np.int64)
    for start, length in zip(rows.starts, rows.lengths, strict=True):
        predicted[start + 1 : start + length] += 1
    wanted = np.ones_like(predicted)
    wanted[starts] = 0
    assert np.array_equal(predicted, wanted)
    pieces = set(zip(rows.starts.tolist(), rows.lengths.tolist(), strict=True))
    assert {(s, n) for s, n in zip(starts.tolist(), lengths, strict=True) if 1 < n <= seq_len + 1} <= pieces

    begins_document = np.isin(rows.starts, starts)
    for first, end in zip(first_piece, rows.ends, strict=True):
        assert begins_document[first] or not begins_document[first:end].any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(2, 33), min_size=1, max_size=60))
def test_rows_are_those_of_a_plain_best_fit_decreasing(lengths: list[int]) -> None:
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        room = [left for left in free if left >= length]
        if room:
            free.remove(min(room))
            free.append(min(room) - length)
        else:
            free.append(33 - length)
    rows = pack(np.cumsum(lengths) - np.array(lengths), np.array(lengths, np.int32), 32)
    sizes = np.add.reduceat(rows.lengths, np.concatenate([[0], rows.ends[:-1]]))
    assert sorted(33 - sizes) == sorted(free)


def test_the_index_does_not_depend_on_where_shards_end_or_blocks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = np.random.default_rng(1).integers(2, 90, 400).tolist()
    write(tmp_path / "all", lengths)
    write(tmp_path / "a", lengths[:150])
    write(tmp_path / "b", lengths[150:])
    whole = PackedRows(TokenStream([tmp_path / "all"]), 32, BOT, tmp_path / "index")
    made = sorted((tmp_path / "index").rglob("*"))
    apart = PackedRows(TokenStream([tmp_path / "a", tmp_path / "b"]), 32, BOT, tmp_path / "index")
    assert sorted((tmp_path / "index").rglob("*")) == made
    assert whole.num_rows == apart.num_rows and whole.padding == apart.padding < 0.01
    other = PackedRows(TokenStream([tmp_path / "all"]), 64, BOT, tmp_path / "index")
    assert other.num_rows < whole.num_rows

    monkeypatch.setattr(shards, "READ_TOGETHER", 7)
    monkeypatch.setattr(shards, "BLOCK_DOCUMENTS", 50)
    blocks = PackedRows(TokenStream([tmp_path / "a", tmp_path / "b"]), 32, BOT, tmp_path / "in-blocks")
    found, wanted = (
        sorted(start for row in range(rows.num_rows) for start in rows.pieces(row)[0].tolist())
        for rows in (blocks, whole)
    )
    assert found == wanted


@pytest.fixture
def packed(settings: dict[str, Any]) -> RunConfig:
    settings["training"] |= {"packing": "best_fit", "document_masking": True}
    return RunConfig.model_validate(settings)


def test_an_epoch_of_batches_holds_every_document_once(packed: RunConfig) -> None:
    data = TrainingData(packed.data, packed.training, packed.run_dir)
    batch_size = len(data.batch(0, 0, 1))
    steps = 4 * sum(data.order.sizes) // batch_size
    seen: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(steps):
        corpora, _ = data.order.windows(number * batch_size, batch_size)
        batch = data.batch(number, 0, 1)
        for row, corpus in enumerate(corpora):
            seen[corpus].append(batch[row].tobytes())
    for corpus, size in enumerate(data.order.sizes):
        epoch = seen[corpus][:size]
        targets = np.concatenate([np.frombuffer(row, np.int64)[1:] for row in epoch])
        stream = TokenStream(packed.data.corpora[corpus].train)
        lengths = np.concatenate([shard.lengths for shard in stream.shards])
        starts = np.cumsum(lengths) - lengths
        tokens = stream.window(0, stream.num_tokens)
        inside = np.delete(tokens, starts)
        counted = (np.bincount(some, minlength=300)[3:] for some in (targets[targets > BOT], inside))
        assert np.array_equal(*counted)
        assert sorted(seen[corpus][size : 2 * size]) == sorted(epoch)


def test_a_batch_reads_documents_and_marks_rests_and_padding(tmp_path: Path) -> None:
    write(tmp_path / "a", [12, 5, 3])
    rows = PackedRows(TokenStream([tmp_path / "a"]), 8, BOT, tmp_path / "index")
    tokens = TokenStream([tmp_path / "a"]).window(0, 20).astype(int)
    out = np.empty((rows.num_rows, 9), np.int64)
    rows.read(np.arange(rows.num_rows), out, np.arange(rows.num_rows))
    # 12 tokens are a window of 9 and a rest of 4, which begins at the window's last token.
    assert out.tolist() == [
        tokens[:9].tolist(),
        [*tokens[12:17], ~tokens[8], *tokens[9:12]],
        [*tokens[17:], *[PADDING] * 6],
    ]


def test_the_loss_of_packed_rows_is_that_of_the_documents_alone(packed: RunConfig) -> None:
    data = TrainingData(packed.data, packed.training, packed.run_dir)
    model = small(context=32, qk_norm=False)
    windows = torch.from_numpy(data.batch(1, 0, 1))
    assert (windows < 0).any()
    with torch.no_grad():
        together = loss_sum(model, Batch.of(windows, BOT), "fp32").item()
        alone = 0.0
        for row in windows:
            begins = [0, *(i for i in range(1, 33) if row[i] < 0 or row[i] == BOT), 33]
            for first, end in itertools.pairwise(begins):
                # [BOT] after [EOT] is predicted too, by the document before it.
                piece = row[first : end + 1] if end < 33 and row[end] == BOT else row[first:end]
                if piece[0] != PADDING and len(piece) > 1:
                    alone += loss_sum(model, Batch.of(piece[None], None), "fp32").item()
    assert together == pytest.approx(alone, rel=1e-5)


def test_padding_at_the_end_of_a_row_is_one_document() -> None:
    window = torch.tensor([[BOT, 7, ~0, 9, BOT, 8, PADDING, PADDING, PADDING, PADDING]])
    batch = Batch.of(window, BOT)
    assert batch.documents is not None
    assert batch.documents.tolist() == [[1, 1, 2, 2, 3, 3, 4, 4, 4]]


@pytest.mark.parametrize("packing", ["windows", "best_fit", "documents"])
def test_no_window_has_more_documents_than_the_index_promises(
    settings: dict[str, Any], packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "READ_TOGETHER", 3)
    monkeypatch.setattr(shards, "BLOCK_DOCUMENTS", 5)
    settings["training"] |= {"packing": packing, "seq_len": 128, "global_batch_tokens": 512}
    settings["training"]["max_tokens"] = 4 * 512
    if packing != "best_fit":
        short = {"name": "short", "until_tokens": 1024, "seq_len": 64}
        settings["training"]["stages"] = [short, {"name": "long", "until_tokens": 2048}]
    config = RunConfig.model_validate(settings)
    data = TrainingData(config.data, config.training, config.run_dir)
    read = []
    for corpus in data.windows:
        rows = np.empty((corpus.num_rows, 129), np.int64)
        corpus.read(np.arange(corpus.num_rows), rows, np.arange(corpus.num_rows))
        read.append(rows)
    for part in held_out(config.data, 128):
        read += part.batches(4, 0, 1)
    numbers = [Batch.of(torch.from_numpy(rows), BOT).documents for rows in read]
    found = max(int((row.max(dim=1).values - row[:, 0]).max()) + 1 for row in numbers if row is not None)
    # One more for padding, or for the document before the window, that the fullest window may not have.
    # The shortest pieces of documents need not lie side by side.
    assert 3 < found <= data.most_documents() <= found + (10 if packing == "documents" else 2)


def test_a_single_corpus_without_held_out_text_promises_a_number_of_documents_too(
    settings: dict[str, Any],
) -> None:
    corpus = settings["data"]["corpora"][0]
    settings["data"]["corpora"] = [corpus | {"validation": [], "validation_bytes": 0}]
    config = RunConfig.model_validate(settings)
    data = TrainingData(config.data, config.training, config.run_dir)
    assert data.most_documents() == data.windows[0].most_documents


def test_the_loss_is_divided_by_the_tokens_predicted_however_the_batch_is_cut(
    settings: dict[str, Any],
) -> None:
    losses = []
    for micro_batch_size in (8, 1):
        settings["training"] |= {"packing": "best_fit", "micro_batch_size": micro_batch_size}
        settings["training"]["optimizer"] = {"kind": "adamw", "eps": 1e-4}
        session = new_session(settings)
        windows = torch.from_numpy(session.plan.data.batch(1, 0, 1))
        predicted = int((windows[:, 1:] >= 0).sum())
        assert predicted < session.training.global_batch_tokens
        expected = loss_sum(session.model, Batch.of(windows, None), "fp32").item() / predicted
        result = step(session, 1)
        assert result.loss == pytest.approx(expected, rel=1e-6)
        losses.append((result.loss, result.grad_norm))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_lengths_that_do_not_add_up_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a", [10, 20, 30])
    path = idx_path(tmp_path / "a")
    content = bytearray(path.read_bytes())
    content[34:38] = (11).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(shards.ShardError, match=r"a\.idx: the lengths of its documents do not add up"):
        PackedRows(TokenStream([tmp_path / "a"]), 32, BOT, tmp_path / "index")
