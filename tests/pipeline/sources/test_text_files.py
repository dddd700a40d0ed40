"""Files of plain text: their lines, their pieces, and bytes that are no text."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.documents import MAX_DOCUMENT_BYTES
from pipeline.sources.formats.text_files import pieces, universal_newlines
from tests.pipeline.sources.reading import documents_and_rejects
from tests.pipeline.sources.test_files import read, texts

PIECE_BYTES = 64 << 10

LONG = ["é" * 9000, "word " * 3000, "😀" * 30000, "x" * (PIECE_BYTES - 1), "x"]

LINE_ENDS = ["\n", "\n\n", "\r", "\r\n", "\r\n\r\n"]

BOOK = "\n\n".join(f"Paragraph {n}. " + "Some words follow here. " * 40 for n in range(3000))


def test_a_line_too_long_to_hold_is_set_aside_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "' + b"x" * MAX_DOCUMENT_BYTES + b'"}\n{"text": "good"}\n')
    rows, rejects = read(path)
    assert [row["text"] for row in rows] == ["good"]
    assert rejects == [("a.jsonl", 1, "too_long")]


@given(
    st.lists(st.sampled_from([*LONG, *LINE_ENDS]), max_size=20),
    st.integers(1000, 1 << 18) | st.just(PIECE_BYTES),
    st.sampled_from([1024, PIECE_BYTES]),
)
def test_a_long_text_is_cut_into_pieces_that_join_to_the_same_text_and_lines(
    parts: list[str], block: int, size: int
) -> None:
    content = "".join(parts).encode()
    found = list(
        pieces(iter([content[start : start + block] for start in range(0, len(content), block)]), size)
    )
    assert b"".join(found) == content
    assert all(0 < len(piece) <= size and piece.decode() for piece in found)
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    assert "".join(universal_newlines(piece.decode()) for piece in found) == lines


def test_windows_and_old_macintosh_text_files_have_the_same_lines_as_others(tmp_path: Path) -> None:
    for name, newline in (("unix", "\n"), ("windows", "\r\n"), ("macintosh", "\r")):
        (tmp_path / f"{name}.md").write_bytes(
            f"\ufeffA title{newline}{newline}- one{newline}- two{newline}".encode()
        )
    assert set(texts(tmp_path / "*.md")) == {"A title\n\n- one\n- two\n"}


@pytest.mark.parametrize("name", ["book.txt", "book.md", "book.txt.gz"])
def test_a_text_file_is_one_document_whatever_its_length(tmp_path: Path, name: str) -> None:
    packed = gzip.compress(BOOK.encode()) if name.endswith(".gz") else BOOK.encode()
    (tmp_path / name).write_bytes(packed)
    assert texts(tmp_path / name) == [BOOK]


def test_a_text_file_is_cut_at_blank_lines_where_the_recipe_says_so(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(BOOK)
    found = texts(tmp_path / "book.txt", piece_bytes=PIECE_BYTES)
    assert len(found) > 40 and "".join(found) == BOOK
    assert all(piece.startswith("Paragraph ") and len(piece) <= PIECE_BYTES for piece in found)


def test_a_text_file_too_long_for_a_document_is_set_aside_with_what_to_set(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_bytes(b"some words on a line\n" * (1 + MAX_DOCUMENT_BYTES // 21))
    rows, rejects = documents_and_rejects(path)
    assert rows == []
    assert [(one.row, str(one.reason), one.lost_bytes) for one in rejects] == [
        (None, "too_long", path.stat().st_size)
    ]
    assert "`piece_bytes`" in rejects[0].detail
    assert sum(len(text) for text in texts(path, piece_bytes=1 << 20)) == path.stat().st_size


def test_bytes_that_are_not_utf8_cost_a_text_file_or_a_piece_of_it(tmp_path: Path) -> None:
    good = ("word " * 1000 + "\n\n") * 40
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + good.encode() + b"caf\xe9")
    (tmp_path / "latin.md").write_bytes("café".encode("latin-1"))
    assert read(tmp_path / "*") == ([], [("a.txt", 1, "invalid_utf8"), ("latin.md", 1, "invalid_utf8")])
    rows, rejects = read(tmp_path / "*", piece_bytes=PIECE_BYTES)
    assert rows[0]["text"].startswith("word")
    assert len(rows) == 3
    assert [reject[0::2] for reject in rejects] == [("a.txt", "invalid_utf8"), ("latin.md", "invalid_utf8")]
