"""Files of plain text that hold many documents, divided by what stands between them."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.formats.text_files import separated
from tests.pipeline.sources.reading import documents_and_rejects

SEPARATORS = ("<|endoftext|>", "\n", "\n\n", "\n<|endoftext|>\n", "%\n", "é", "aa")


@given(data=st.data(), separator=st.sampled_from(SEPARATORS))
def test_parts_are_those_between_separators_however_the_stream_is_cut(
    data: st.DataObject, separator: str
) -> None:
    pieces = st.sampled_from((separator, separator.replace("\n", "\r\n"), *"aé%<\n\r", "<|endof", "word "))
    content = "".join(data.draw(st.lists(pieces, max_size=30))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=12)))
    blocks = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    found = [(offset, b"".join(part)) for offset, part in separated(iter(blocks), separator)]
    assert all(content[offset:].startswith(part) for offset, part in found)
    # A line end that the stream cuts in two may end two lines, of which one is empty.
    line = r"(?:\r\n|\r|\n)".join(map(re.escape, separator.split("\n")))
    documents = [one.strip("\r\n") for one in re.split(line, content.decode())]
    assert [one for _, part in found if (one := part.decode().strip("\r\n"))] == list(filter(None, documents))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_of_stories_is_a_document_each_without_what_divides_them(tmp_path: Path, end: str) -> None:
    content = end.join(["One day,", "", "a cat.", "<|endoftext|>", "Two.", "<|endoftext|>", "", "Three.", ""])
    (tmp_path / "stories.txt.gz").write_bytes(gzip.compress(content.encode()))
    rows, rejects = documents_and_rejects(tmp_path / "*", document_separator="<|endoftext|>")
    assert [row["text"] for row in rows] == ["One day,\n\na cat.", "Two.", "Three."] and rejects == []
    assert len({row["id"] for row in rows}) == 3


def test_each_line_may_be_a_document_and_none_needs_another(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("first\n\nsecond\nthird")
    rows, _ = documents_and_rejects(tmp_path / "*", document_separator="\n")
    (tmp_path / "lines.txt").write_text("first\n\nsecond\nthird\nfourth\n")
    more, _ = documents_and_rejects(tmp_path / "*", document_separator="\n")
    assert [row["text"] for row in rows] == ["first", "second", "third"]
    assert [(row["id"], row["text"]) for row in more][:3] == [(row["id"], row["text"]) for row in rows]


def test_a_document_that_is_too_long_or_no_text_costs_itself_only(tmp_path: Path) -> None:
    long = b"some words on a line\n" * (1 + MAX_DOCUMENT_BYTES // 21)
    (tmp_path / "a.txt").write_bytes(b"\nEND\n".join([b"one", long, b"caf\xe9", b"two"]))
    rows, rejects = documents_and_rejects(tmp_path / "*", document_separator="END")
    assert [row["text"] for row in rows] == ["one", "two"]
    assert [(one.row, str(one.reason)) for one in rejects] == [
        (8, "too_long"),
        (len(long) + 13, "invalid_utf8"),
    ]
    rows, _ = documents_and_rejects(tmp_path / "*", document_separator="END", piece_bytes=MAX_DOCUMENT_BYTES)
    assert [len(row["text"]) for row in rows][1] > MAX_DOCUMENT_BYTES // 2 and len(rows) == 4


def test_of_a_damaged_file_all_documents_before_the_damage_are_read(tmp_path: Path) -> None:
    packed = gzip.compress(b"\n".join(b"story %d\nEND" % number for number in range(5000)))
    (tmp_path / "cut.txt.gz").write_bytes(packed[: len(packed) // 2])
    rows, rejects = documents_and_rejects(tmp_path / "*", document_separator="END")
    assert [row["text"] for row in rows][:2] == ["story 0", "story 1"] and len(rows) > 1000
    assert len(rejects) == 1


def test_the_place_of_a_piece_counts_what_was_left_out_before_it(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_bytes(b"\n" * 3000 + b"\xff the end")
    rows, (rejected,) = documents_and_rejects(tmp_path / "*", document_separator="END", piece_bytes=1024)
    assert rows == [] and rejected.detail.startswith("byte 3000 of the file: ")
