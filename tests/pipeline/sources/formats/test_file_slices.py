"""Slices of a large file: together the same documents and the same rejects as the file."""

import itertools
import json
import random
from pathlib import Path

from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.formats.file_slices import slices
from pipeline.sources.source import Rejected, Unit
from pipeline.sources.source_file import LocalFile

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
ROW = st.builds(lambda text, number: {"text": text, "n": number}, TEXT, st.integers(0, 9))
LINE = st.one_of(
    ROW.map(lambda row: json.dumps(row).encode()),
    ROW.map(lambda row: json.dumps(row, ensure_ascii=False).encode() + b"\r"),
    st.sampled_from([b"", b"  ", b"{", b"7", b'{"text": "\xff"}', b'{"id": "x", "text": "seen before"}']),
    st.integers(1, 40).map(lambda times: json.dumps({"text": "long " * 20 * times}).encode()),
)


def read(source: FilesSource, units: list[Unit]) -> tuple[list[tuple[str, str, str]], list[Rejected]]:
    """The documents, and what was set aside but for repeated ids, which a stage finds among all units."""
    rejects: list[Rejected] = []
    found: dict[str, tuple[str, str, str]] = {}
    for unit in units:
        for batch in source.read(unit, rejects):
            rows = zip(*(batch.column(name).to_pylist() for name in ("id", "text", "metadata")), strict=True)
            for row in rows:
                found.setdefault(row[0], row)
    return list(found.values()), [one for one in rejects if one.reason != "duplicate_id"]


@examples(deadline=None)
@given(st.lists(LINE, min_size=2, max_size=60), st.integers(1, 400), st.booleans(), st.booleans())
@example([b'{"text": "a"}', b'{"text": "b"}'], 1, True, True)
def test_slices_give_what_the_file_gives(
    tmp_path_factory: object, lines: list[bytes], size: int, ends: bool, marked: bool
) -> None:
    folder: Path = tmp_path_factory.mktemp("slices")  # type: ignore[attr-defined]
    content = b"\xef\xbb\xbf" * marked + b'{"text": "first"}\n' + b"\n".join(lines) + b"\n" * ends
    (folder / "a.jsonl").write_bytes(content)
    source = FilesSource("c", FilesConfig(kind="files", paths=[str(folder / "*.jsonl")]))
    (whole,) = source.units()
    cut = source.slices(whole, size)
    assert read(source, cut) == read(source, [whole])
    assert sum(unit.bytes for unit in cut) == len(content)
    ranges = [unit.slice for unit in cut if unit.slice]
    for one, following in itertools.pairwise(ranges):
        assert one.end == following.start and content[one.end - 1 : one.end] == b"\n"
        assert following.lines_before == content.count(b"\n", 0, following.start)


PIECE = st.one_of(
    TEXT.map(str.encode),
    st.sampled_from([b"", b"\n", b"\r\n", b"\r", b"<|endoftext", b"\xff", b"word " * 30, b"a", b"|>"]),
)


@examples(deadline=None)
@given(
    st.sampled_from(["<|endoftext|>", "\n", "\n\n", "\n---\n", "aa", "ab"]),
    st.lists(st.lists(PIECE, max_size=3).map(b"".join), max_size=40),
    st.integers(1, 200),
    st.sampled_from([None, 1024]),
)
def test_slices_of_text_with_separators_give_what_the_file_gives(
    tmp_path_factory: object, separator: str, texts: list[bytes], size: int, piece_bytes: int | None
) -> None:
    folder: Path = tmp_path_factory.mktemp("slices")  # type: ignore[attr-defined]
    (folder / "a.txt").write_bytes(separator.encode().join([b"first", *texts]))
    settings = {"document_separator": separator, "piece_bytes": piece_bytes}
    source = FilesSource("c", FilesConfig(kind="files", paths=[str(folder / "*.txt")], **settings))
    (whole,) = source.units()
    assert read(source, source.slices(whole, size)) == read(source, [whole])


def test_a_change_moves_only_the_cuts_beside_it(tmp_path: Path) -> None:
    generator, path = random.Random(0), tmp_path / "a.jsonl"
    lines = [b'{"text": "%d"}' % generator.randrange(10**40) for _ in range(20_000)]
    kept = total = 0
    for _ in range(20):
        keys = []
        changed = list(lines)
        changed[generator.randrange(len(lines))] = (
            b'{"text": "another text, which is longer than that before"}'
        )
        for content in (lines, changed):
            path.write_bytes(b"\n".join(content))
            keys.append({one.key for one in slices(LocalFile(path), 40_000, b"\n")})
        assert len(keys[0]) > 15
        kept, total = kept + len(keys[0] & keys[1]), total + len(keys[0])
    assert kept / total > 0.85


def test_other_files_are_left_whole(tmp_path: Path) -> None:
    rows = [{"text": f"text {number}"} for number in range(1000)]
    (tmp_path / "array.json").write_text(json.dumps(rows))
    (tmp_path / "over-lines.json").write_text("\n".join(json.dumps(row, indent=1) for row in rows))
    (tmp_path / "text.txt").write_text("text\n" * 10_000)  # one document
    (tmp_path / "wide.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-16")
    source = FilesSource("c", FilesConfig(kind="files", paths=[str(tmp_path / "*")]))
    units = source.units()
    assert [one for unit in units for one in source.slices(unit, 100)] == units
