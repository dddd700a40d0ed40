"""The text that C4's line rules leave, beside datatrove's filter with all of its options that edit text."""

import io
import json
from itertools import islice

import pyarrow as pa
import pytest
import zstandard

from pipeline.stages.edits import EditParams, edit
from pipeline.store.params import DOCUMENT_SCHEMA
from tests.corpora import CORPORA, needs_corpora

NUMBER = 1_000  # documents of each corpus


@needs_corpora
@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["enwiki", "techdocs"])
def test_c4_leaves_the_text_that_datatrove_leaves(corpus: str) -> None:
    filters = pytest.importorskip("datatrove.pipeline.filters.c4_filters")
    data = pytest.importorskip("datatrove.data")
    with (CORPORA / f"{corpus}.jsonl.zst").open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        texts = [json.loads(line)["text"] for line in islice(lines, NUMBER)]
    columns = {name: [None] * len(texts) for name in DOCUMENT_SCHEMA.names}
    documents = pa.RecordBatch.from_pydict(
        columns | {"id": [str(n) for n in range(len(texts))], "text": texts}, schema=DOCUMENT_SCHEMA
    )
    left = edit(documents, EditParams(rules=("policy", "c4", "citations")))[0].column("text").to_pylist()
    peer = filters.C4QualityFilter(min_num_sentences=-1, filter_lorem_ipsum=False, filter_curly_bracket=False)
    same = 0
    for text, ours in zip(texts, left, strict=True):
        document = data.Document(text=text, id="")
        peer.filter(document)
        # It also strips each line, which no rule of ours does: indentation means something in code.
        same += "\n".join(line.strip() for line in ours.splitlines()).strip() == document.text
    assert same >= 0.995 * len(texts)
