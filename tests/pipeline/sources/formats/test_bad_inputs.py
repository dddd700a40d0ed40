"""Other people's bad input: each case is set aside with its reason, good neighbors arrive, counts fit."""

import json
import tarfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.corpora import CORPORA, needs_corpora
from tests.pipeline.sources.reading import documents_and_rejects, read
from tests.rows import jsonl

BAD_INPUTS = CORPORA / "bad_inputs"
pytestmark = needs_corpora


def test_bad_lines() -> None:
    rows, rejects = read(BAD_INPUTS / "bad_lines.jsonl.zst")
    assert [row["text"][:18] for row in rows] == [
        "fine",
        "b",
        "bom line",
        "x",  # beside a NaN
        "fine2",
        "a\x00b",
        "x" * 18,
        "no newline at end",
    ]
    assert rejects == [
        (2, "invalid_json"),
        (3, "no_text"),
        (4, "null_text"),
        (5, "text_not_a_string"),
        (6, "not_an_object"),
        (10, "lone_surrogate"),
        (11, "invalid_utf8"),
    ]


def test_naughty_strings_arrive_as_they_are(tmp_path: Path) -> None:
    naughty = json.loads((BAD_INPUTS / "blns" / "blns.json").read_text())
    jsonl(tmp_path / "blns.jsonl", *({"text": text} for text in naughty))
    rows, rejects = read(tmp_path / "blns.jsonl")
    assert [row["text"] for row in rows] == [text for text in naughty if text.strip()]
    assert rejects == [(row, "empty_text") for row, text in enumerate(naughty, 1) if not text.strip()]
    assert len(read(BAD_INPUTS / "blns" / "blns.txt")[0]) == 1


def test_the_json_test_suite_is_judged_as_it_says_with_good_neighbors_between(tmp_path: Path) -> None:
    with tarfile.open(BAD_INPUTS / "json_test_suite.tar.xz") as archive:
        cases = {
            Path(member.name).name: archive.extractfile(member)
            for member in archive
            if member.isfile() and member.name.endswith(".json")
        }
        contents = {name: file.read() for name, file in cases.items() if file}
    one_line = {
        name: content for name, content in sorted(contents.items()) if b"\n" not in content.strip(b"\n")
    }
    lines = []
    for name, content in one_line.items():
        lines += [
            b'{"id": "%s", "text": "case", "value": %s}' % (name.encode(), content.strip(b"\n")),
            b'{"text": "neighbor"}',
        ]
    (tmp_path / "suite.jsonl").write_bytes(b"\n".join(lines))
    rows, rejects = read(tmp_path / "suite.jsonl")
    names = list(one_line)
    assert all(row and row % 2 for row, _ in rejects)  # no neighbor
    rejected = {names[(row or 0) // 2] for row, _ in rejects}
    assert Counter(row["text"] for row in rows) == {
        "neighbor": len(names),
        "case": len(names) - len(rejected),
    }
    assert {name for name in rejected if name.startswith("y_")} == set()
    # JSON has none of them, but Python and pandas write them: they are read as null.
    not_numbers = {"n_number_NaN.json", "n_number_infinity.json", "n_number_minus_infinity.json"}
    assert {name for name in names if name.startswith("n_") and name not in rejected} == not_numbers


@pytest.fixture
def raw_texts() -> dict[str, bytes]:
    """Byte strings by name, none of them all UTF-8 but the last."""
    lines = (BAD_INPUTS / "invalid_utf8_synthetic.tsv").read_bytes().rstrip(b"\n").split(b"\n")
    return {name.decode(): raw for name, _, raw in (line.partition(b"\t") for line in lines)}


def test_invalid_utf8_in_json_lines_parquet_and_text_files(
    tmp_path: Path, raw_texts: dict[str, bytes]
) -> None:
    good = {"nul_inside"}
    bad_rows = [(row, "invalid_utf8") for row, name in enumerate(raw_texts, 1) if name not in good]
    lines = [b'{"text": "%s"}' % raw.replace(b"\0", b"\\u0000") for raw in raw_texts.values()]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    rows, rejects = read(tmp_path / "a.jsonl")
    assert [row["text"] for row in rows] == [raw_texts[name].decode() for name in raw_texts if name in good]
    assert rejects == bad_rows

    pq.write_table(
        pa.table({"text": pa.array(list(raw_texts.values())).view(pa.string())}), tmp_path / "a.parquet"
    )
    rows, rejects = read(tmp_path / "a.parquet")
    assert (len(rows), rejects) == (len(good), bad_rows)

    for name, raw in raw_texts.items():
        (tmp_path / f"{name}.txt").write_bytes(raw)
    rows, rejects = documents_and_rejects(tmp_path / "*.txt")
    assert [row["source"] for row in rows] == [f"{name}.txt" for name in sorted(good)]
    marked = {"bom_utf16le", "fe_ff"}  # the file says that it is UTF-16
    bad_files = [
        (f"{name}.txt", None if name in marked else 1, "invalid_utf8")
        for name in sorted(set(raw_texts) - good)
    ]
    assert [(reject.file, reject.row, str(reject.reason)) for reject in rejects] == bad_files


def test_a_folder_of_broken_parquet_does_not_keep_a_good_file_from_arriving(tmp_path: Path) -> None:
    for file in BAD_INPUTS.glob("parquet_*/*.parquet"):
        (tmp_path / file.name).symlink_to(file)
    pq.write_table(pa.table({"text": ["good"]}), tmp_path / "good.parquet")
    rows, rejects = documents_and_rejects(tmp_path / "*.parquet")
    assert [row["text"] for row in rows] == ["good"]
    files = {path.name for path in tmp_path.iterdir()}
    assert {reject.file for reject in rejects} == files - {"good.parquet"}
    # each file as a whole
    assert Counter((reject.row, str(reject.reason)) for reject in rejects) == {
        (None, "no_text"): 19,
        (None, "broken_parquet"): 1,
    }


@pytest.mark.parametrize(
    ("file", "column", "documents", "set_aside"),
    [
        ("parquet_bad/ARROW-GH-41317.parquet", "string", 2, [(1, "broken_parquet")]),
        ("parquet_bad/ARROW-GH-41321.parquet", "large_string", 2, [(1, "broken_parquet")]),
        ("parquet_bad/ARROW-RS-GH-6229-DICTHEADER.parquet", "name", 0, [(1, "broken_parquet")]),
        ("parquet_bad/ARROW-GH-45185.parquet", "x", 0, [(None, "text_not_a_string")]),
        ("parquet_other/alltypes_plain.parquet", "string_col", 8, []),
        ("parquet_other/alltypes_tiny_pages.parquet", "string_col", 7300, []),
        ("parquet_other/lz4_raw_compressed.parquet", "c1", 4, []),
        ("parquet_other/plain-dict-uncompressed-checksum.parquet", "binary_field", 1000, []),
        (
            "parquet_other/rle-dict-uncompressed-corrupt-checksum.parquet",
            "binary_field",
            0,
            [(1, "broken_parquet")],
        ),
    ],
)
def test_the_texts_of_odd_parquet_files(
    file: str, column: str, documents: int, set_aside: list[tuple[int | None, str]]
) -> None:
    rows, rejects = read(BAD_INPUTS / file, text_column=column, id_column=None)
    assert (len(rows), rejects) == (documents, set_aside)
