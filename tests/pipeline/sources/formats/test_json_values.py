"""JSON in any layout: each object is a document, and a broken one costs itself, or the rest is counted."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.documents import Batches
from pipeline.sources.files import FilesConfig
from pipeline.sources.formats.json_values import LOOKED_AHEAD, read_json_values
from pipeline.sources.formats.rows import RowReader
from pipeline.sources.source import Rejected
from tests.pipeline.sources.reading import documents_and_rejects

TEXTS = st.text(min_size=1).filter(str.strip)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"text": TEXTS}, optional={"tags": st.lists(TEXTS), "n": st.floats() | st.integers()}
    )
)
LAYOUTS = {
    "array": lambda rows: "[" + ",".join(rows) + "]",
    "lines of an array": lambda rows: "[\n" + "\n,".join(rows) + "\n]\n",
    "end to end": lambda rows: "".join(rows),
    "with commas": lambda rows: ",\r\n".join(rows) + ",",
}


def texts_and_rejects(content: bytes, block: int) -> tuple[list[str], list[Rejected]]:
    rejects: list[Rejected] = []
    batches = Batches("c", rejects, None)
    reader = RowReader("a.json", FilesConfig(paths=("a.json",)), batches, bytes=len(content))
    blocks = (content[at : at + block] for at in range(0, len(content), block))
    read = [*read_json_values(blocks, reader), *batches.rest()]
    return [text for batch in read for text in batch.column("text").to_pylist()], rejects


@given(
    ROWS, st.sampled_from(sorted(LAYOUTS)), st.sampled_from([None, 1, 4]), st.booleans(), st.integers(1, 40)
)
def test_every_object_is_a_document(
    rows: list[dict[str, object]], layout: str, indent: int | None, ascii_only: bool, block: int
) -> None:
    written = [json.dumps(row, indent=indent, ensure_ascii=ascii_only) for row in rows]
    content = LAYOUTS[layout](written).encode()
    texts, rejects = texts_and_rejects(content, block)
    assert texts == [row["text"] for row in rows]
    assert rejects == []


def rows_of_text(number: int, size: int = 10) -> list[dict[str, object]]:
    return [{"text": f"text {n} " + "word " * size, "of": {"n": [n, {"deep": n}]}} for n in range(number)]


@pytest.mark.parametrize(
    "broken", ['"no colon" 1', '"text": "cut off', '"text": "a" "b": 1', "\0", '"text": 01']
)
@pytest.mark.parametrize("size", [1, LOOKED_AHEAD // 2])
def test_a_broken_object_of_an_indented_file_costs_itself_only(
    tmp_path: Path, broken: str, size: int
) -> None:
    rows = rows_of_text(6, size)
    written = [json.dumps(row, indent=2) for row in rows]
    written[2] = "{\n  " + broken + "\n}"
    (tmp_path / "a.json").write_text("[\n" + ",\n".join(written) + "\n]")
    found, rejects = documents_and_rejects(tmp_path / "a.json")
    assert [row["text"] for row in found] == [row["text"] for n, row in enumerate(rows) if n != 2]
    assert [(one.row, one.reason) for one in rejects] == [(3, "invalid_json")]


@st.composite
def damaged_arrays(draw: st.DrawFn) -> tuple[list[str], int, str]:
    """The texts of the rows of an array in one line, which of them is damaged, and the array. Rows hold lists
    of objects that begin as the rows do, and texts that look like rows.
    """
    usual = st.sampled_from(["word", '}, {"id": 1, "text": "in a text"}', "[{", "\\", '"', "é"])
    size = draw(st.sampled_from([1, 1, 1, LOOKED_AHEAD // 20]))
    texts = [f"{n} {one}" * size for n, one in enumerate(draw(st.lists(usual, min_size=2, max_size=8)))]
    answers = [{"id": 7, "said": "an answer"}, {"id": 8, "said": "another"}]
    rows = [json.dumps({"id": n, "text": text, "answers": answers}) for n, text in enumerate(texts)]
    damaged = draw(st.integers(1, len(rows) - 1))
    row = rows[damaged]
    at, inserted = (
        draw(st.integers(1, len(row) - 1)),
        draw(st.sampled_from(["", *'"{}[],:\\x', "\0", '"}', '{"'])),
    )
    rows[damaged] = row[:at] + inserted + row[at + draw(st.integers(not inserted, 1)) :]
    return texts, damaged, f"[{', '.join(rows)}]"


@given(damaged_arrays(), st.sampled_from([7, 1 << 16]))
def test_a_broken_object_of_an_array_in_one_line_costs_itself_and_at_most_the_next(
    damaged: tuple[list[str], int, str], block: int
) -> None:
    texts, number, content = damaged
    found, rejects = texts_and_rejects(content.encode(), block if len(content) < LOOKED_AHEAD else 1 << 16)
    near = {number, number + 1}
    undamaged = [text for n, text in enumerate(texts) if n not in near]
    assert [text for text in found if text in undamaged] == undamaged
    assert len(found) <= len(texts)
    assert rejects or len(found) == len(texts)
    assert not {"an answer", "another", "in a text"} & set(found)


def test_after_a_broken_first_object_those_that_begin_as_it_does_are_read() -> None:
    texts, rejects = texts_and_rejects(
        b'[{"id": 1, "text": no}, {"id": 2, "text": "b"}, {"id": 3, "text": "c"}]', 9
    )
    assert texts == ["b", "c"]
    assert [one.row for one in rejects] == [1]


def test_what_follows_a_broken_object_and_resembles_none_before_is_counted_as_lost(tmp_path: Path) -> None:
    written = [json.dumps({f"of {n}": n, **row}) for n, row in enumerate(rows_of_text(100))]
    written[20] = written[20].replace('"text"', "text")
    path = tmp_path / "a.json"
    path.write_text(f"[{', '.join(written)}]")
    found, rejects = documents_and_rejects(path)
    assert len(found) == 20
    [reject] = rejects
    assert (reject.row, reject.reason) == (21, "invalid_json")
    assert "character" in reject.detail and "what follows is not read" in reject.detail
    assert reject.lost_bytes == pytest.approx(0.8 * path.stat().st_size, rel=0.02)


def test_a_file_that_ends_within_an_object_gives_those_before(tmp_path: Path) -> None:
    whole = json.dumps(rows_of_text(3), indent=2)
    (tmp_path / "a.json").write_text(whole[:-60])
    found, rejects = documents_and_rejects(tmp_path / "a.json")
    assert len(found) == 2 and [one.row for one in rejects] == [3]


@pytest.mark.parametrize("said", ["messages", "conversations"])
def test_a_file_may_be_one_conversation(tmp_path: Path, said: str) -> None:
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    (tmp_path / "a.json").write_text(json.dumps({said: turns}, indent=2))
    found, rejects = documents_and_rejects(tmp_path / "a.json", format="chat")
    assert len(found) == 1 and rejects == []
