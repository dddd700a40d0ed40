"""What every source shares: ids, batches, metadata, configuration."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pipeline.sources import SourceConfig
from pipeline.sources.documents import (
    BATCH_BYTES,
    METADATA_BYTES,
    ROW_BYTES,
    Batches,
    SourceDocument,
    document_id,
    location,
    metadata_json,
    own_id,
)
from pipeline.sources.source import Rejected
from pipeline.store.params import DOCUMENT_SCHEMA


def test_a_documents_id_never_changes_between_releases() -> None:
    assert document_id("books", own_id("42")) == "0a55e359cc36fcbeaf72abdc1c656f0b"


@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_different_corpora_or_source_ids_never_share_an_id(
    corpus: str, source_id: str, other_corpus: str, other_id: str
) -> None:
    same = (corpus, source_id) == (other_corpus, other_id)
    assert (document_id(corpus, source_id) == document_id(other_corpus, other_id)) == same


def test_an_id_that_looks_like_a_location_is_not_taken_for_one() -> None:
    assert own_id("at:a.jsonl:1") != location("a.jsonl", 1)


def collected(*documents: SourceDocument) -> tuple[list[pa.RecordBatch], list[Rejected]]:
    rejects: list[Rejected] = []
    batches = Batches("c", rejects)
    out = []
    for document in documents:
        batches.add("f", document)
        out += batches.full()
    return [*out, *batches.rest()], rejects


def test_batches_hold_a_few_megabytes_and_keep_the_order() -> None:
    found, rejects = collected(*(SourceDocument(str(n), f"{n:08d}" * 50_000, n, "s") for n in range(50)))
    assert rejects == []
    assert all(batch.schema == DOCUMENT_SCHEMA for batch in found)
    assert [row["text"][:8] for batch in found for row in batch.to_pylist()] == [
        f"{n:08d}" for n in range(50)
    ]
    assert all(BATCH_BYTES <= batch.num_rows * 400_000 < BATCH_BYTES + 400_000 for batch in found[:-1])


def test_metadata_is_bounded_and_says_how_much_was_left_out() -> None:
    fitting = json.loads(metadata_json({"big": "x" * METADATA_BYTES, "small": 1, "list": [1, 2]}) or "")
    assert fitting == {"small": 1, "list": [1, 2], "left_out": 1}
    assert metadata_json({}) is None


def test_metadata_is_the_same_text_in_each_process() -> None:
    """Else a source of the user's own would seem to have changed whenever it is read."""
    code = (
        "from pipeline.sources.documents import metadata_json; "
        "print(metadata_json({'tags': {'one', 'two', 'three', (4, 5)}, 'a': [object()], 'of': lambda: 1}))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    told = {"tags": [[4, 5], "one", "three", "two"], "a": ["<object object>"], "of": "<function <lambda>>"}
    assert list(map(json.loads, texts)) == [told]


def test_metadata_nested_too_deeply_to_be_written_is_left_out() -> None:
    nested = json.loads("[" * 600 + "]" * 600)
    assert json.loads(metadata_json({"nested": nested, "small": 1}) or "") == {"small": 1, "left_out": 1}


def test_an_unknown_kind_of_corpus_is_refused_with_the_kinds_there_are() -> None:
    with pytest.raises(ValidationError, match=r"'python_docs', 'python_questions', 'files', 'warc', 'hub'"):
        TypeAdapter(SourceConfig).validate_python({"kind": "tape"})


def test_importing_the_sources_imports_nothing_heavy() -> None:
    code = (
        "import sys, pipeline.sources; print([m for m in ('datasets', 'huggingface_hub', 'torch', "
        "'pandas', 'numba', 'dagster') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_a_batch_of_tiny_texts_is_bounded_by_its_rows() -> None:
    """A row takes hundreds of bytes while it is collected: of texts of one letter, gigabytes."""
    batches = Batches("c", [])
    sizes = []
    for number in range(200_000):
        batches.add("words", SourceDocument(location("words", number), "a", number, "words"))
        sizes += [batch.num_rows for batch in batches.full()]
    assert sizes and max(sizes) * ROW_BYTES <= BATCH_BYTES + ROW_BYTES
