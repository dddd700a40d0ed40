"""JSON lines in blocks of any size; a line that is broken or too long costs itself only."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.documents import Batches, document_id, own_id
from pipeline.sources.formats import jsonl
from pipeline.sources.formats.jsonl import read_jsonl
from pipeline.sources.formats.rows import Columns, RowReader
from pipeline.sources.source import Rejected
from tests.pipeline.sources.reading import documents_and_rejects

PIECES = [
    *rb'{"text":"a"} {"text": "b", "id":"1"} {"te\u0078t":"c"} {"text": \ud83d " \n \n\n'.split(b" "),
    b"\r\n",
    b"\xff",
]


def found(blocks: list[bytes], columns: Columns | None = None) -> tuple[list[dict[str, Any]], list[Rejected]]:
    rejects: list[Rejected] = []
    batches = Batches("c", rejects, columns.max_documents if columns else None)
    read = [*read_jsonl(iter(blocks), RowReader("f", columns or Columns(), batches)), *batches.rest()]
    return [row for batch in read for row in batch.to_pylist()], rejects


@given(
    st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join),
    st.integers(1, 9),
    st.sampled_from([None, 1, 2]),
)
def test_blocks_of_any_size_are_read_alike(content: bytes, size: int, max_documents: int | None) -> None:
    columns = Columns(max_documents=max_documents)
    blocks = [content[start : start + size] for start in range(0, len(content), size)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jsonl, "MAX_DOCUMENT_BYTES", 20)  # some lines are too long to be held
        assert found(blocks, columns) == found([content], columns)


@pytest.mark.parametrize(
    "escape",
    [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ud83dx", r"\u12", r"\u12g4", r"\x", "\\", "\t", "\x1f"],
)
def test_a_broken_escape_costs_its_line_only(escape: str) -> None:
    good = '{"text": "good"}'
    rows, rejects = found(["\n".join([good, f'{{"text": "{escape}"}}', good]).encode()])
    assert ([row["text"] for row in rows], [reject.row for reject in rejects]) == (["good", "good"], [2])


def test_integers_of_more_than_64_bits_stay_what_they_are(tmp_path: Path) -> None:
    path, long = tmp_path / "a.jsonl", "12345678901234567890123"
    path.write_text(f'{{"id": {long}, "text": "one", "n": [-{long}], "f": 1e30, "i": {2**64 - 1}}}\n')
    ((row,), rejects) = documents_and_rejects(path)
    assert (row["id"], rejects) == (document_id("c", own_id(long)), [])
    assert json.loads(row["metadata"]) == {"n": [f"-{long}"], "f": 1e30, "i": 2**64 - 1}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    "row", ['{"text": "kept", "score": %s}', '{"text": "kept", "deep": {"list": [1, %s]}}']
)
def test_a_number_that_is_none_is_null_in_metadata(row: str, value: str) -> None:
    rows, rejects = found([(row % value).encode()])
    assert rejects == []
    assert rows[0]["text"] == "kept"
    assert json.loads(rows[0]["metadata"]) in ({"score": None}, {"deep": {"list": [1, None]}})


def test_a_text_that_is_no_number_is_no_text_and_the_word_in_a_text_changes_nothing() -> None:
    rows, rejects = found([b'{"text": NaN}\n{"text": "NaN and Infinity"}\n{"text": "NaN" broken}\n'])
    assert [row["text"] for row in rows] == ["NaN and Infinity"]
    assert [(one.row, str(one.reason)) for one in rejects] == [(1, "null_text"), (3, "invalid_json")]


def test_a_row_without_the_column_of_the_text_names_those_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"title": "A", "body": "B", "someone@example.org": 1}\n{"someone@example.org": 1}\n')
    _, rejects = documents_and_rejects(path)
    assert [one.detail for one in rejects] == [
        "no column 'text', which `text_column` names; there are 'title', 'body'",
        "no column 'text', which `text_column` names",
    ]
