"""Other people's readers return the documents and windows that we wrote."""

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from examples import other_token_formats
from pipeline.recipe.sections import ShardParams
from pipeline.sources.formats.conversations import conversation
from pipeline.stages import bpe
from pipeline.steps.export.tokens import write
from pipeline.steps.tokens.shard_sets import ShardSet
from pipeline.steps.tokens.shards import SplitShards
from tests.s3_server import serving, use
from trainer.data.shard_writer import ShardWriter
from trainer.data.shards import TokenStream, bin_path, idx_path

BOT, EOT, SEQ_LEN = 2, 3, 31


@pytest.fixture(params=["uint16", "uint32"])
def shards(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[ShardSet, list[list[np.ndarray]], np.dtype]:
    """Two shards of a corpus, and the documents of each."""
    dtype, chooser = np.dtype(request.param), np.random.default_rng(7)
    top = 65_536 if dtype == np.uint16 else 200_000
    written = [
        [
            np.concatenate([[BOT], chooser.integers(4, top, size), [EOT]])
            for size in chooser.integers(0, 90, 40)
        ]
        for _ in range(2)
    ]
    prefixes = [tmp_path / f"part.{number:05d}" for number in range(2)]
    for prefix, documents in zip(prefixes, written, strict=True):
        with ShardWriter(prefix, dtype) as writer:
            for document in documents:
                writer.add(document)
    return ShardSet("corpus", "train", tuple(prefixes)), written, dtype


def test_megatrons_own_reader_returns_the_documents_we_wrote(shards, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indexed_dataset = pytest.importorskip(
            "megatron.core.datasets.indexed_dataset", reason="needs megatron-core, the reader"
        )
    found, written, dtype = shards
    out = tmp_path / "megatron"
    out.mkdir()
    write([found], out, lambda tokens: None)
    for prefix, documents in zip(found.prefixes, written, strict=True):
        dataset = indexed_dataset.IndexedDataset(str(out / "corpus" / "train" / prefix.name))
        assert len(dataset) == len(documents)
        assert dataset.index.dtype == (np.uint16 if dtype == np.uint16 else np.int32)
        assert dataset.document_indices.tolist() == list(range(len(documents) + 1))
        for number, document in enumerate(documents):
            assert np.array_equal(dataset[number], document)
            assert np.array_equal(dataset.get(number, offset=1), document[1:])


def test_megatrons_own_reader_returns_conversations_and_preferences(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indexed_dataset = pytest.importorskip(
            "megatron.core.datasets.indexed_dataset", reason="needs megatron-core, the reader"
        )
    said = [{"role": "user", "content": "What is it? [END]"}, {"role": "assistant", "content": "漢字 🙂"}]
    pair = {"prompt": "Is it so?", "chosen": "Yes.", "rejected": "No, [EOT] no."}
    rows = [conversation("chat", {"messages": 2 * said}), conversation("preferences", {**pair})]
    files = bpe.files(bpe.train([pa.array(rows * 3)], bpe.TokenizerParams(vocab_size=280, chat=True)))
    ends = bpe.boundaries(files["tokenizer.json"], files["tokenizer_config.json"])
    encoder = bpe.Encoder(files["tokenizer.json"], ends, fast=True)
    series = SplitShards(tmp_path, "part", encoder, ShardParams(validation_fraction=1e-9, longest=500))
    series.write([pa.RecordBatch.from_pydict({"id": ["a", "b"], "text": rows})])
    series.finish(tmp_path / "record.json", {})
    dataset = indexed_dataset.IndexedDataset(str(tmp_path / "train" / "part.00000"))
    reader = Tokenizer.from_str(files["tokenizer.json"])
    text = "".join(f"[{one['role'].upper()}]{one['content']}[END]" for one in 2 * said)
    pair_text = "".join(
        f"[BOT][USER]Is it so?[END][ASSISTANT]{pair[name]}[END][EOT]" for name in ("chosen", "rejected")
    )
    expected = [f"[BOT]{text}[EOT]", pair_text]
    assert [reader.decode(ids, skip_special_tokens=False) for ids in dataset] == expected
    assert [int((ids == ends.begin).sum()) for ids in dataset] == [1, 2]
    assert [int((ids == ends.control["end"]).sum()) for ids in dataset] == [4, 4]


def test_megatrons_reader_of_buckets_returns_the_documents_we_wrote(shards, tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indexed_dataset = pytest.importorskip(
            "megatron.core.datasets.indexed_dataset", reason="needs megatron-core, the reader"
        )
    found, written, _ = shards
    with serving() as server:
        use(server, monkeypatch)
        for prefix, documents in zip(found.prefixes, written, strict=True):
            for path in (bin_path(prefix), idx_path(prefix)):
                server.client.put_object(Bucket="bucket", Key=f"train/{path.name}", Body=path.read_bytes())
            storage = indexed_dataset.ObjectStorageConfig(str(tmp_path / "indexes"))
            dataset = indexed_dataset.IndexedDataset(
                f"s3://bucket/train/{prefix.name}", mmap=False, object_storage_config=storage
            )
            assert len(dataset) == len(documents)
            for number, document in enumerate(documents):
                assert np.array_equal(dataset[number], document)


def test_datatroves_folder_dataset_returns_our_windows_and_where_documents_begin(shards, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("datatrove", reason="needs datatrove, the reader")
    from datatrove.utils.dataset import DatatroveFolderDataset

    found, written, dtype = shards
    out = tmp_path / "datatrove"
    out.mkdir()
    other_token_formats.datatrove([found], out)
    dataset = DatatroveFolderDataset(
        str(out / "train"), SEQ_LEN, token_size=dtype.itemsize, return_positions=True
    )
    windows = [
        (
            np.concatenate(documents),
            np.concatenate([np.arange(len(document)) for document in documents]),
            start,
        )
        for documents in written
        for start in range(0, sum(map(len, documents)) - SEQ_LEN, SEQ_LEN + 1)
    ]
    assert len(dataset) == len(windows)
    for row, (tokens, positions, start) in zip(
        map(dataset.__getitem__, range(len(dataset))), windows, strict=True
    ):
        assert np.array_equal(row["input_ids"], tokens[start : start + SEQ_LEN + 1])
        inside = positions[start : start + SEQ_LEN + 1]
        first = int(np.argmax(inside == 0)) if (inside == 0).any() else len(inside)
        # datatrove counts a document that began before the window from the window's start.
        assert row["positions"].tolist() == [*range(first), *inside[first:]]


def test_our_reader_returns_what_megatrons_writer_wrote(shards, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indexed_dataset = pytest.importorskip(
            "megatron.core.datasets.indexed_dataset", reason="needs megatron-core, the writer"
        )
    torch = pytest.importorskip("torch")
    _, written, dtype = shards
    builder = indexed_dataset.IndexedDatasetBuilder(
        str(tmp_path / "theirs.bin"), dtype=np.uint16 if dtype == np.uint16 else np.int32
    )
    for document in written[0]:
        builder.add_document(torch.from_numpy(document.astype(np.int64)), [len(document)])
    builder.finalize(str(tmp_path / "theirs.idx"))
    stream = TokenStream([tmp_path / "theirs"])
    stream.shards[0].check_index()
    assert np.array_equal(stream.window(0, stream.num_tokens), np.concatenate(written[0]))
    for number, document in enumerate(written[0]):
        assert np.array_equal(stream.shards[0].document(number), document)
