"""`packing: documents`: each token once an epoch; a removed or added document changes nothing before it."""

from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.shards import write_shard
from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.data.packing import document_stream
from trainer.data.packing.document_stream import DocumentStream, DocumentWindows, shuffled
from trainer.data.shards import TokenStream

BOT, EOT = 2, 3
Documents = list[list[int]]


def opened(folder: Path, documents: Documents, longest: int = 12) -> DocumentStream:
    """The stream over these documents, in two shards."""
    number, half = len(list(folder.iterdir())), len(documents) // 2
    prefixes = [folder / f"{number}-{shard}" for shard in "ab"]
    write_shard(prefixes[0], documents[:half])
    write_shard(prefixes[1], documents[half:])
    return DocumentStream(TokenStream(prefixes), longest, "7/a", str(number), folder / "index")


def drawn(lengths: list[int], seed: int = 0) -> Documents:
    chooser = np.random.default_rng(seed)
    return [[BOT, *chooser.integers(10, 300, length - 2).tolist(), EOT] for length in lengths]


def text(stream: DocumentStream, count: int) -> list[int]:
    """The first tokens of the stream."""
    found = [stream.tokens.window(run.start, run.length) for run in stream.runs(0, count)]
    return np.concatenate(found).astype(int).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 70), min_size=2, max_size=40), st.integers(1, 20))
def test_each_epoch_predicts_every_token_but_a_documents_first_once(lengths: list[int], longest: int) -> None:
    with TemporaryDirectory() as folder:
        stream, begins = opened(Path(folder), drawn(lengths), longest), [0, *accumulate(lengths)]
        epochs = [[*stream.runs(epoch * stream.num_tokens, stream.num_tokens)] for epoch in range(3)]
    for runs in epochs:
        assert all(run.begins and run.length <= longest + 1 for run in runs)
        predicted = np.zeros(begins[-1], int)
        for start, length, _ in runs:
            predicted[start + 1 : start + length] += 1
        wanted = np.ones_like(predicted)
        wanted[begins[:-1]] = 0
        assert np.array_equal(predicted, wanted)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(2, 40), min_size=3, max_size=30),
    st.integers(0, 29),
    st.lists(st.integers(0, 29), max_size=5),
)
def test_without_a_document_the_stream_is_the_same_up_to_where_it_was(
    lengths: list[int], removed: int, copies: list[int]
) -> None:
    documents = drawn(lengths)
    documents += [documents[copy % len(lengths)] for copy in copies]
    gone = removed % len(documents)
    without = documents[:gone] + documents[gone + 1 :]
    begins = [0, *accumulate(map(len, documents))]
    with TemporaryDirectory() as folder:
        one, other = opened(Path(folder), documents), opened(Path(folder), without)
        # Nobody can tell which one of equal documents has gone.
        equal = [number for number, document in enumerate(documents) if document == documents[gone]]
        places = (one.places(begins[each], begins[each + 1], one.num_tokens) for each in equal)
        common = min(first for found in places for first, _ in found)
        assert common <= other.num_tokens
        assert text(one, common + 1)[:-1] == text(other, common + 1)[:-1]
        begun = one.begun(common)
        assert [*one.contents(0, begun)] == [*other.contents(0, other.begun(common))]
        if documents[gone] not in without:
            assert [*one.contents(0, begun + 1)] != [*other.contents(0, begun + 1)]


def test_epochs_have_orders_of_their_own_and_copies_do_not_lie_together(tmp_path: Path) -> None:
    contents = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    one, two = shuffled(contents, b"0"), shuffled(contents, b"1")
    assert np.array_equal(np.sort(one), np.arange(1000)) and (one == two).sum() < 10
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.1 and abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.1
    copied = np.where(np.arange(1000) < 20, contents[0], contents)
    places = np.flatnonzero(np.isin(shuffled(copied, b"0"), range(20)))
    assert len(places) == 20 and np.diff(places).max() > 20


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 60), min_size=2, max_size=20), st.integers(2, 9), st.data())
def test_the_windows_that_hold_some_tokens_are_those_of_an_enumeration(
    lengths: list[int], seq_len: int, data: st.DataObject
) -> None:
    """Over three epochs."""
    begin = data.draw(st.integers(0, sum(lengths) - 1))
    end = data.draw(st.integers(begin + 1, sum(lengths)))
    with TemporaryDirectory() as folder:
        windows = DocumentWindows(opened(Path(folder), drawn(lengths)), seq_len, BOT)
        most = 3 * windows.num_rows
        held = []
        for number in range(most):
            starts, sizes = windows.pieces(number)
            assert sizes.sum() == seq_len + 1
            held.append(((starts < end) & (starts + sizes > begin)).any())
        assert windows.holding(begin, end, most).tolist() == np.flatnonzero(held).tolist()


def test_a_rest_of_a_document_is_told_apart_from_what_comes_before_it(tmp_path: Path) -> None:
    windows = DocumentWindows(opened(tmp_path, drawn([40, 5, 30]), longest=8), 75 + 6, BOT)
    out = np.empty((1, 82), np.int64)
    windows.read(np.array([0]), out, np.array([0]))
    # Five pieces of 40 tokens and four of 30, of which two begin documents as the third one does.
    assert (out < 0).sum() == 4 + 3 and (out == BOT).sum() == 3 + int(out[0, -1] == BOT)
    runs = [*windows.stream.runs(0, 82)]
    for at, run in zip(accumulate([0, *(run.length for run in runs)]), runs, strict=False):
        token = int(windows.stream.tokens.window(run.start, 1)[0])
        assert out[0, at] == (token if token == BOT else ~token)


def test_other_shards_under_the_same_names_are_indexed_anew(settings: dict[str, Any], tmp_path: Path) -> None:
    corpus = settings["data"]["corpora"][0]
    settings["data"]["corpora"] = [corpus | {"train": [str(tmp_path / "text")]}]
    settings["training"]["packing"] = "documents"
    config, batches = RunConfig.model_validate(settings), []
    for seed in (1, 2):
        write_shard(tmp_path / "text", drawn([20] * 30, seed))
        data = TrainingData(config.data, config.training, tmp_path / "index")
        batches.append(data.batch(0, 0, 1))
        fresh = TrainingData(config.data, config.training, tmp_path / f"fresh-{seed}")
        assert np.array_equal(batches[-1], fresh.batch(0, 0, 1))
    assert not np.array_equal(*batches)


def test_hashes_are_the_same_however_many_are_asked_for_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(tmp_path, drawn([20] * 100))
    whole = b"".join(stream.contents(3, 250))
    monkeypatch.setattr(document_stream, "TOGETHER", 7)
    assert len(whole) == 247 * 16 and b"".join(stream.contents(3, 250)) == whole
