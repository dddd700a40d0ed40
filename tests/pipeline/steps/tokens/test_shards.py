"""Token shards of a corpus: whole documents, each once, the same bytes however they were made."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline.recipe.sections import ShardParams
from pipeline.sources.files import FilesConfig
from pipeline.stages import bpe
from pipeline.stages.bpe.encode import FastEncoder
from pipeline.stages.dedup import DedupParams
from pipeline.steps.tokens.shards import ShardSeries, SplitShards, prefixes
from pipeline.steps.tokens.tokenizer_files import TokenizerFiles
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import deduplicate, tokenize, tokenizer, up_to_quality
from tests.rows import jsonl
from trainer.data.shards import Shard

SMALL = bpe.TokenizerParams(vocab_size=400)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some thirty chapters in several parts, up to a tokenizer."""
    directory = tmp_path_factory.mktemp("prepared")
    store, path = Store(directory / "store"), directory / "topics.jsonl"
    jsonl(path, *({"text": text} for text in TEXTS))
    up_to_quality(store, ENGINE, "topics", FilesConfig(paths=(str(path),)), 100_000)
    deduplicate(store, ENGINE, ["topics"], DedupParams())
    tokenizer(store, ENGINE, "mine", ["topics"], SMALL, 0.1)
    return store.root


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> Store:
    return Store(Path(shutil.copytree(prepared, tmp_path / "store")))


def tokenized_anew(store: Store, engine: LocalEngine = ENGINE) -> Version:
    shutil.rmtree(store.root / "token_shards", ignore_errors=True)
    return tokenize(store, engine, "topics", ShardParams(validation_fraction=0.1))


def documents(version: Version, split: str) -> list[list[int]]:
    shards = [Shard(prefix) for prefix in prefixes(version, split)]
    return [shard.document(i).tolist() for shard in shards for i in range(shard.num_documents)]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=40),
    st.integers(1, 50),
    st.lists(st.integers(0, 39), max_size=5),
)
@settings(deadline=None)
def test_documents_are_never_cut_and_shards_never_too_long_but_for_one_document(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], max_tokens: int, cuts: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("series")
    flat, sizes = np.arange(sum(lengths), dtype=np.uint32), np.array(lengths)
    stops = np.cumsum([0, *lengths])
    with ShardSeries(directory, "part", np.dtype("<u2"), max_tokens) as series:
        edges = sorted({0, *(cut for cut in cuts if cut < len(lengths)), len(lengths)})
        for first, until in pairwise(edges):
            series.add(flat[stops[first] : stops[until]], sizes[first:until], sizes[first:until] * 3)
    shards = [Shard(made.prefix) for made in series.shards]
    assert [shard.document(i).tolist() for shard in shards for i in range(shard.num_documents)] == [
        list(range(start, stop)) for start, stop in pairwise(stops)
    ]
    for shard, following in zip(shards, [*shards[1:], None], strict=True):
        assert shard.num_tokens <= max_tokens or shard.num_documents == 1
        assert following is None or shard.num_tokens + following.lengths[0] > max_tokens
    assert [(made.documents, made.tokens, made.text_bytes) for made in series.shards] == [
        (shard.num_documents, shard.num_tokens, 3 * shard.num_tokens) for shard in shards
    ]


def test_shards_of_any_size_hold_the_same_documents_and_say_what_is_in_them(store: Store) -> None:
    whole = tokenize(store, ENGINE, "topics", ShardParams(validation_fraction=0.2))
    cut = tokenize(store, ENGINE, "topics", ShardParams(validation_fraction=0.2, shard_tokens=5_000))
    assert len(whole.parts) > 1 and len(prefixes(cut, "train")) > len(prefixes(whole, "train"))
    for split in ("train", "validation"):
        assert documents(cut, split) == documents(whole, split)
        assert cut.counts[f"{split}_text_bytes"] == whole.counts[f"{split}_text_bytes"]
    sha256 = store.current(keys.TOKENIZER).parts[0].files["tokenizer.json"].sha256
    for part in cut.parts:
        record = json.loads(cut.file(part, "shards").read_text())
        assert record["tokenizer_sha256"] == sha256 and record["dtype"] == "uint16"
        hashes = {file.path: file.sha256 for table, file in part.files.items() if table != "shards"}
        assert {path: sha for shard in record["shards"] for path, sha in shard["files"].items()} == hashes
        assert (
            sum(shard["tokens"] for shard in record["shards"])
            == part.counts["train_tokens"] + part.counts["validation_tokens"]
        )


def test_a_document_without_text_is_left_out_and_named(store: Store, tmp_path: Path) -> None:
    found = TokenizerFiles.read(store.current(keys.TOKENIZER).path)
    series = SplitShards(
        tmp_path,
        "part",
        bpe.Encoder(found.tokenizer_json, found.boundaries, True),
        ShardParams(validation_fraction=0.49),
    )
    series.write([pa.RecordBatch.from_pydict({"id": ["a", "b", "c", "d"], "text": ["one", "", "two", ""]})])
    _, counts = series.finish(tmp_path / "shards.json", {})
    assert series.empty == ["b", "d"] and counts["empty_documents"] == 2
    assert counts["train_documents"] + counts["validation_documents"] == 2


def test_one_process_and_two_write_the_same_bytes(store: Store) -> None:
    two = LocalEngine(workers=2, processes_pay_above=0)
    assert tokenized_anew(store).data_version == tokenized_anew(store, two).data_version
    two.close()


def test_a_fast_encoder_that_is_wrong_is_found_out_and_the_part_is_encoded_by_the_slow_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = tokenized_anew(store)
    expected = [documents(right, split) for split in ("train", "validation")]
    encode = FastEncoder.encode

    def wrong(self: FastEncoder, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        ids, stops = encode(self, texts)
        return np.where(ids == 300, 301, ids), stops

    monkeypatch.setattr(FastEncoder, "encode", wrong)
    found = tokenized_anew(store)
    assert found.counts["encoder_fallbacks"] == len(found.parts) > 1
    assert [documents(found, split) for split in ("train", "validation")] == expected
    assert "the ids of the fast encoder differ from those of `tokenizers`" in caplog.text


def test_an_existing_tokenizer_is_copied_frozen_and_its_own_tokens_begin_and_end_documents(
    store: Store, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    trained = bpe.train([pa.array(TEXTS)], bpe.TokenizerParams(vocab_size=500, pattern="gpt2"))
    one = Tokenizer.from_str(trained.to_str().replace("[EOT]", "<|endoftext|>"))
    one.enable_truncation(16)  # as a tokenizer.json from elsewhere may ask for
    (theirs / "tokenizer.json").write_text(one.to_str())
    (theirs / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>"}})
    )
    params = bpe.ExistingTokenizer.model_validate({"from": "theirs"}).anchored(tmp_path)
    version = tokenizer(store, ENGINE, "mine", ["topics"], params, 0.1)
    kept = json.loads(one.to_str()) | {"truncation": None}
    assert json.loads((version.path / "tokenizer.json").read_text()) == kept
    shards = documents(tokenize(store, ENGINE, "topics", ShardParams(validation_fraction=0.1)), "train")
    end = one.token_to_id("<|endoftext|>")
    assert all(document[0] == document[-1] == end and end not in document[1:-1] for document in shards)
    assert max(map(len, shards)) > 1000
    (theirs / "tokenizer.json").unlink()
    assert tokenizer(store, ENGINE, "mine", ["topics"], params, 0.1).data_version == version.data_version


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (None, {}, "configuration has no bos_token: name one of its tokens as begin_of_text"),
        ({"bos_token": "[BOT]"}, {}, "has no eos_token: name one of its tokens as end_of_text"),
        ({"bos_token": "[BOT]"}, {"end_of_text": "</s>"}, r"'</s>' \(eos_token\) is not in its vocabulary"),
    ],
)
def test_an_existing_tokenizer_without_begin_or_end_is_refused_naming_what_to_set(
    tmp_path: Path, config: dict[str, str] | None, settings: dict[str, str], message: str
) -> None:
    (tmp_path / "tokenizer.json").write_text(bpe.train([pa.array(TEXTS)], SMALL).to_str())
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    params = bpe.ExistingTokenizer.model_validate({"from": str(tmp_path / "tokenizer.json"), **settings})
    with pytest.raises(bpe.TokenizerError, match=message):
        tokenizer(Store(tmp_path / "store"), ENGINE, "mine", [], params, 0.1)
