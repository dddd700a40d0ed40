"""Token shards: what is written is read back, and what is broken is refused with its name."""

import gc
import itertools
import resource
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.shards import write_shard
from trainer.data.shard_writer import ShardWriter, token_dtype
from trainer.data.shards import HEADER, Shard, ShardError, TokenStream

documents_strategy = st.lists(
    st.lists(st.integers(0, 65_535), min_size=1, max_size=20), min_size=1, max_size=12
)


@settings(max_examples=40, deadline=None)
@given(documents_strategy, st.sampled_from(["uint16", "uint32"]))
def test_documents_come_back_as_they_were_written(documents: list[list[int]], dtype: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shard = Shard(write_shard(Path(folder) / "a", documents, dtype))
        assert [shard.document(i).tolist() for i in range(shard.num_documents)] == documents
        assert shard.tokens.tolist() == [token for document in documents for token in document]
        assert shard.num_tokens == sum(map(len, documents))


@st.composite
def sharded_documents(draw: st.DrawFn) -> list[list[list[int]]]:
    """Documents, cut anywhere into shards; a shard may be empty."""
    documents = draw(documents_strategy)
    cuts = sorted(draw(st.lists(st.integers(0, len(documents)), max_size=4)))
    return [documents[first:after] for first, after in itertools.pairwise([0, *cuts, len(documents)])]


def stream_of(folder: str, shards: list[list[list[int]]]) -> TokenStream:
    types, folders = itertools.cycle(("uint16", "uint32")), Path(folder)
    made = enumerate(zip(shards, types, strict=False))
    return TokenStream([write_shard(folders / str(number), some, dtype) for number, (some, dtype) in made])


@settings(max_examples=60, deadline=None)
@given(sharded_documents(), st.data())
def test_a_window_is_a_slice_of_the_concatenated_shards(
    shards: list[list[list[int]]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = stream_of(folder, shards)
        flat = [token for documents in shards for document in documents for token in document]
        start = data.draw(st.integers(0, len(flat)))
        length = data.draw(st.integers(0, len(flat) - start))
        assert stream.num_tokens == len(flat)
        assert stream.window(start, length).tolist() == flat[start : start + length]
        for outside in ((start, len(flat) - start + 1), (-1, 1)):
            with pytest.raises(IndexError, match=f"not in a stream of {len(flat)}"):
                stream.window(*outside)


@settings(max_examples=60, deadline=None)
@given(sharded_documents(), st.data())
def test_gathered_rows_are_the_windows_and_other_rows_are_left_alone(
    shards: list[list[list[int]]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = stream_of(folder, shards)
        length = data.draw(st.integers(1, stream.num_tokens))
        possible = st.lists(st.integers(0, stream.num_tokens - length), max_size=6)
        starts = np.array(data.draw(possible), np.int64)
        rows = np.array(data.draw(st.permutations(range(len(starts) + 2))), np.int64)[: len(starts)]
        out = np.full((len(starts) + 2, length), -1, np.int64)
        stream.gather(starts, out, rows)
        read = dict(zip(rows.tolist(), starts.tolist(), strict=True))
        for row, found in enumerate(out.tolist()):
            assert found == (stream.window(read[row], length).tolist() if row in read else [-1] * length)
        with pytest.raises(IndexError, match="are not in a stream"):
            stream.gather(np.array([stream.num_tokens - length + 1]), out, np.array([0]))


def test_more_shards_than_a_process_may_open_files(tmp_path: Path) -> None:
    stream = TokenStream([write_shard(tmp_path / str(number), [[number, 1], [2]]) for number in range(80)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 8, hard))
    try:
        out = np.empty((80, 3), np.int64)
        stream.gather(np.arange(80) * 3, out, np.arange(80))
        lengths = np.concatenate([shard.lengths for shard in stream.shards])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert out.tolist() == [[number, 1, 2] for number in range(80)]
    assert lengths.tolist() == [2, 1] * 80


def test_what_was_read_outlives_the_shard_and_cannot_be_written_to(tmp_path: Path) -> None:
    window = TokenStream([write_shard(tmp_path / "a", [list(range(5000))])]).window(4000, 1000)
    gc.collect()
    assert window.tolist() == list(range(4000, 5000))
    with pytest.raises(ValueError, match="read-only"):
        window[0] = 1


def test_bulk_and_single_writes_give_the_same_bytes(tmp_path: Path) -> None:
    write_shard(tmp_path / "one", [[1, 2, 3], [4], [5, 6]])
    with ShardWriter(tmp_path / "bulk", np.dtype("uint16")) as writer:
        writer.add_documents(np.array([1, 2, 3, 4]), np.array([3, 1]))
        writer.add_documents(np.array([5, 6]), np.array([2]))
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"bulk{suffix}").read_bytes()


def test_the_index_has_the_bytes_megatron_expects(tmp_path: Path) -> None:
    write_shard(tmp_path / "a", [[7, 8], [9]])
    raw = (tmp_path / "a.idx").read_bytes()
    assert raw[:9] == b"MMIDIDX\x00\x00"
    assert struct.unpack("<QBQQ", raw[9:34]) == (1, 8, 2, 3)
    assert struct.unpack("<2i2q3q", raw[34:]) == (2, 1, 0, 4, 0, 1, 2)
    assert (tmp_path / "a.bin").read_bytes() == struct.pack("<3H", 7, 8, 9)


def test_the_token_type_follows_from_the_largest_id() -> None:
    assert token_dtype(65_535) == np.uint16
    assert token_dtype(65_536) == np.uint32
    assert token_dtype(2**31 - 1) == np.uint32
    with pytest.raises(ValueError, match="2147483648"):
        token_dtype(2**31)


@pytest.mark.parametrize(
    ("last", "lengths", "dtype", "says"),
    [
        ([65_536, 5], [2, 2, 2], "uint16", "document 3 holds id 65536"),
        ([-1, 5], [2, 2, 2], "uint16", "document 3 holds id -1"),
        ([2**31, 5], [2, 2, 2], "uint32", "document 3 holds id 2147483648"),
        ([], [4, 0], "uint16", "document 2 has 0 tokens"),
    ],
)
def test_a_document_that_cannot_be_written_is_named_and_nothing_is_left(
    tmp_path: Path, last: list[int], lengths: list[int], dtype: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says), ShardWriter(tmp_path / "a", np.dtype(dtype)) as writer:
        writer.add(np.array([1]))
        writer.add_documents(np.array([1, 2, 3, 4, *last]), np.array(lengths))
    assert list(tmp_path.iterdir()) == []


def test_nothing_has_its_final_name_before_the_end(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a", np.dtype("uint16")) as writer:
        writer.add(np.array([1]))
        assert not {"a.bin", "a.idx"} & {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"a.bin", "a.idx"}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _patch(path: Path, at: int, raw: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(raw)] = raw
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (lambda folder: _cut(folder / "a.bin"), "a.bin: 5 bytes"),
        (lambda folder: _cut(folder / "a.idx"), "a.idx: .* truncated"),
        (lambda folder: (folder / "a.idx").write_bytes(b"short"), "a.idx: 5 bytes"),
        (lambda folder: (folder / "a.bin").unlink(), "a.bin: no such file"),
        (lambda folder: _patch(folder / "a.idx", 0, b"PARQUET!!"), "not a Megatron index"),
        (lambda folder: _patch(folder / "a.idx", 9, b"\x02"), "version 2"),
        (lambda folder: _patch(folder / "a.idx", 17, b"\x06"), "dtype code 6"),
    ],
)
def test_a_damaged_shard_is_refused_by_name(tmp_path: Path, damage: object, names: str) -> None:
    write_shard(tmp_path / "a", [[1, 2], [3], [4]])
    assert callable(damage)
    damage(tmp_path)
    with pytest.raises(ShardError, match=names):
        Shard(tmp_path / "a")


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        ((4, struct.pack("<i", -4)), "document 1 has length -4"),
        ((3 * 4 + 8, struct.pack("<q", 9)), "document 1 starts at byte 9"),
        ((3 * 12 + 8, struct.pack("<q", 2)), "document starts are not"),
    ],
)
def test_a_damaged_index_is_found_by_checking_it(
    tmp_path: Path, damage: tuple[int, bytes], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.data.shards.CHECKED_TOGETHER", 2)
    shard = Shard(write_shard(tmp_path / "a", [[1, 2], [3], [4]]))
    shard.check_index()
    _patch(tmp_path / "a.idx", HEADER.size + damage[0], damage[1])
    with pytest.raises(ShardError, match=f"a.idx: .*{names}"):
        Shard(tmp_path / "a").check_index()


def test_a_document_that_the_index_puts_outside_the_shard_is_not_read(tmp_path: Path) -> None:
    write_shard(tmp_path / "a", [[1, 2], [3], [4]])
    _patch(tmp_path / "a.idx", HEADER.size + 4, struct.pack("<i", 9))
    with pytest.raises(ShardError, match="document 1 has 9 tokens from 2 on; the shard has 4"):
        Shard(tmp_path / "a").document(1)
    with pytest.raises(IndexError, match="3 does not exist"):
        Shard(tmp_path / "a").document(3)
