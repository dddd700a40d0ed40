"""A key is made of its stage, corpus and name, and is read back from its path alone."""

import json
import pickle

import pytest
import yaml

from pipeline.store import keys
from pipeline.store.keys import DecidedPart, Key


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (keys.DEDUP, "dedup"),
        (keys.raw("books"), "corpora/books/raw"),
        (keys.raw("text.unread"), "corpora/text.unread/raw"),
        (keys.filtered("books", "short"), "corpora/books/filters/short"),
        (keys.token_shards("books"), "token_shards/books"),
        (keys.base_shards("books"), "base_shards/books"),
        (keys.token_index("books"), "token_index/books"),
        (keys.passage_index("books"), "passage_index/books"),
        (keys.evaluation_text("unread"), "evaluation_texts/unread"),
        (keys.benchmarks("72d1fe24-00000343"), "benchmarks/72d1fe24-00000343"),
        (Key(keys.DEDUP, name=DecidedPart("books", "0001").name), "dedup/books.0001"),
        (Key.from_path("runs/72d1fe24/checkpoints"), "runs/72d1fe24/checkpoints"),
        (Key.from_path("corpora/books"), "corpora/books"),
    ],
)
def test_a_key_is_read_back_from_its_path(key: Key, path: str) -> None:
    assert key == path
    for read in (Key.from_path(path), pickle.loads(pickle.dumps(key))):
        assert (read, read.stage, read.corpus, read.name) == (key, key.stage, key.corpus, key.name)


def test_json_and_yaml_hold_the_path_of_a_key() -> None:
    assert json.loads(json.dumps({keys.DEDUP: keys.raw("books")})) == {"dedup": "corpora/books/raw"}
    assert yaml.safe_load(yaml.safe_dump(str(keys.raw("books")))) == "corpora/books/raw"


def test_a_part_of_dedup_tells_its_corpus() -> None:
    assert DecidedPart.from_name("books.0001.jsonl") == DecidedPart("books", "0001.jsonl")
    assert Key.from_path("dedup/books.0001").is_decided_part and not keys.DEDUP.is_decided_part


def test_only_what_follows_from_the_sources_is_data() -> None:
    assert keys.raw("books").is_data and keys.token_index("books").is_data
    assert not keys.TOKENIZER.is_data and not keys.benchmarks("72d1fe24-00000343").is_data
