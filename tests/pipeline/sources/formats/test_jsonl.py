"""Lines read in batches: the same documents and the same rejects as when each line is read alone."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.sources.documents import Batches
from pipeline.sources.formats.jsonl import read_jsonl
from pipeline.sources.formats.rows import Columns, RowReader
from pipeline.sources.rejects import Rejected

Found = tuple[list[dict[str, Any]], list[Rejected]]

TEXTS = st.text(st.sampled_from('aé€😀"\\/\n\x00 \u2003{}[]:,'), max_size=12)
VALUES = st.one_of(
    TEXTS,
    st.none(),
    st.integers(-9, 9),
    st.lists(TEXTS, max_size=2),
    st.dictionaries(st.sampled_from(["text", "a"]), TEXTS),
)
OBJECTS = st.dictionaries(st.sampled_from(["text", "id", "url", 'a"b', "te\\xt"]), VALUES, max_size=4)
PIECES = [*rb'{"text": "text" "a " \ \u d83d \ude00 \u00e9 : , { } [ ] 1'.split(), b" ", b"\r", b"\xff"]


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line: mostly JSON as any program may write it, some of it damaged."""
    if draw(st.integers(0, 4)) == 0:
        return b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=8)))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
    line = json.dumps(draw(OBJECTS), ensure_ascii=draw(st.booleans()), separators=separators).encode()
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.sampled_from(PIECES)) + line[at + draw(st.integers(0, 2)) :]
    return line


class OneByOne(RowReader):
    takes_batches = False


def found(content: bytes, columns: Columns, kind: type[RowReader] = RowReader) -> Found:
    rejects: list[Rejected] = []
    batches = Batches("c", rejects, columns.max_documents)
    read = [*read_jsonl(iter([content]), kind("f", columns, batches)), *batches.rest()]
    return [row for batch in read for row in batch.to_pylist()], rejects


@given(
    st.lists(lines(), max_size=6).map(b"\n".join),
    st.sampled_from(["text", "url", "id"]),
    st.sampled_from([None, 1, 2]),
)
@example(b'{"te\\u0078t": "a", "text": "b"}', "text", None)
@example(b'{"text": "a", "text": "b"}\n{"text": "a"}\n{"text": "a"} {"text": "b"}', "text", None)
@example(
    b'["text": "a"]\n{"a": ["text", "text"], "text": "b"}\n{"a": {"text": "b"}}\n"text": "a"', "text", None
)
@example(b'{"text": "a"}\n{"text": null}\n{"text": "b"}\n{"text": "c"}', "text", 2)
def test_lines_together_are_read_like_each_alone(
    content: bytes, column: str, max_documents: int | None
) -> None:
    columns = Columns(text_column=column, max_documents=max_documents)
    assert found(content, columns) == found(content, columns, OneByOne)


@pytest.mark.parametrize(
    "escape",
    [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ud83dx", r"\u12", r"\u12g4", r"\x", "\\", "\t", "\x1f"],
)
def test_a_broken_escape_costs_its_line_only(escape: str) -> None:
    good = '{"text": "good"}'
    rows, rejects = found("\n".join([good, f'{{"text": "{escape}"}}', good]).encode(), Columns())
    assert ([row["text"] for row in rows], [reject.row for reject in rejects]) == (["good", "good"], [2])
