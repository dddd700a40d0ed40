"""Which columns make a document, and files that are not UTF-8."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.sources.documents import document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.sources.formats.streams import as_utf8
from tests.pipeline.sources.reading import read
from tests.rows import jsonl

ROWS = [
    {
        "key": 7,
        "title": "A title",
        "body": "A body with {braces}",
        "link": "http://a/",
        "year": 1999,
        "junk": "x",
    },
    {"key": 8, "title": None, "body": "No title", "link": None, "year": 2000, "junk": "x"},
]
MAPPING: dict[str, Any] = {
    "text_template": "{title} ({year})\n\n{body}",
    "id_column": "key",
    "url_column": "link",
    "metadata_columns": ["junk"],
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_template_and_named_columns_make_the_document(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "jsonl":
        jsonl(path, *ROWS)
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    rows, rejects = read(path, **MAPPING)
    assert rows == [
        {
            "id": document_id("c", own_id("7")),
            "text": "A title (1999)\n\nA body with {braces}",
            "source": path.name,
            "url": "http://a/",
            "metadata": '{"junk":"x"}',
        }
    ]
    assert rejects == [(2, "null_text")]


TITLED: list[dict[str, Any]] = [{"title": "Graph theory", "year": 1999, "text": "A text"}]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("config", "metadata"),
    [
        ({}, {"title": "Graph theory", "year": 1999}),
        ({"text_template": "{title}: {text}"}, {"year": 1999, "title": "Graph theory"}),
        ({"metadata_columns": ["year"]}, {"year": 1999}),
        ({"metadata_columns": ["title"]}, {"title": "Graph theory"}),
    ],
)
def test_a_title_that_is_the_id_stays_beside_it(
    tmp_path: Path, suffix: str, config: dict[str, Any], metadata: dict[str, Any]
) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "jsonl":
        jsonl(path, *TITLED)
    else:
        pq.write_table(pa.Table.from_pylist(TITLED), path)
    rows, rejects = read(path, id_column="title", **config)
    assert not rejects and [row["id"] for row in rows] == [document_id("c", own_id("Graph theory"))]
    assert json.loads(rows[0]["metadata"]) == metadata


def test_only_sources_whose_ids_are_kept_are_read_again() -> None:
    named = {name: FilesConfig(paths=("a.jsonl",), **config).version for name, config in VERSIONS.items()}
    assert {name for name, version in named.items() if version} == {"title", "title in the text"}


VERSIONS: dict[str, Any] = {
    "none": {},
    "the usual one": {"id_column": "id"},
    "the text": {"id_column": "text"},
    "title": {"id_column": "title"},
    "title in the text": {"id_column": "title", "text_template": "{title}: {text}"},
}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"text_template": "no column"}, "names no column"),
        ({"text_template": "{title.upper}"}, "is not a plain column name"),
        ({"text_template": "{0[a]}"}, "is not a plain column name"),
        ({"text_template": "{}"}, "is not a plain column name"),
        ({"text_template": "{a}", "text_column": "b"}, "both text_column and text_template"),
        ({"encoding": "utf-9"}, "'utf-9' is not an encoding"),
        *(
            ({"encoding": name}, f"'{name}' is not an encoding of text files")
            for name in ("idna", "punycode", "rot13", "base64", "undefined")
        ),
    ],
)
def test_a_mapping_that_cannot_work_is_refused_at_once(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        FilesConfig(paths=("a",), **config)


def test_files_in_other_encodings_arrive_and_their_invalid_rows_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"text": "Grüße"}\n{"text": "naïve"}\n'.encode("latin-1"))
    assert [row["text"] for row in read(tmp_path / "a.jsonl", encoding="latin-1")[0]] == ["Grüße", "naïve"]
    (tmp_path / "b.jsonl").write_bytes(
        '{"text": "吾輩"}\n'.encode("shift_jis")
        + b'{"text": "\x81\x20"}\n'
        + '{"text": "猫"}\n'.encode("shift_jis")
    )
    rows, rejects = read(tmp_path / "b.jsonl", encoding="shift_jis")
    assert ([row["text"] for row in rows], rejects) == (["吾輩", "猫"], [(2, "invalid_utf8")])
    (tmp_path / "c.csv").write_bytes("text,n\r\nŽluťoučký,1\r\n".encode("utf-16"))
    assert [row["text"] for row in read(tmp_path / "c.csv", encoding="utf-16")[0]] == ["Žluťoučký"]
    (tmp_path / "d.txt").write_bytes("no mark".encode("utf-16-le"))
    assert read(tmp_path / "d.txt", encoding="utf-16") == ([], [(None, "invalid_utf8")])


@given(
    st.text(st.characters(codec="utf-16")),
    st.sampled_from(["utf-16", "utf-8-sig", "gb18030", "utf-32"]),
    st.integers(1, 7),
)
def test_any_text_in_any_encoding_is_the_same_in_utf8_wherever_blocks_end(
    text: str, encoding: str, size: int
) -> None:
    content = text.encode(encoding)
    assert (
        b"".join(
            as_utf8(iter([content[start : start + size] for start in range(0, len(content), size)]), encoding)
        ).decode()
        == text
    )


SAID = [
    '"Hello," he said.',
    "Come in.",
    '"It was late',
    'and dark." Then',
    '"Yes."',
    'He said "no".',
    "The end.",
]


@pytest.mark.parametrize(("name", "mark"), [("a.tsv", "\t"), ("a.csv", "|")])
@given(texts=st.permutations(SAID), quoted=st.booleans())
def test_quotes_of_a_table_without_quoting_stay_and_cost_no_row(
    tmp_path_factory: pytest.TempPathFactory, name: str, mark: str, texts: list[str], quoted: bool
) -> None:
    path = tmp_path_factory.mktemp("said") / name
    texts = [f"{texts[0]}{mark} or\nnot", *texts[1:]] if quoted else texts
    with path.open("w", newline="", encoding="utf-8") as file:
        if quoted:
            csv.writer(file, delimiter=mark).writerows([("id", "text"), *enumerate(texts)])
        else:
            file.writelines(f"{number}{mark}{text}\n" for number, text in [("id", "text"), *enumerate(texts)])
    found, rejects = read(path, separator=mark)
    assert ([row["text"] for row in found], rejects) == (texts, [])


PARTS = ['"', "a", " b", ",", "\n", "\\alpha", "\\ "]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@given(texts=st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join), max_size=4))
def test_quotes_behind_a_backslash_as_spark_writes_them_are_read(
    tmp_path_factory: pytest.TempPathFactory, mark: str, texts: list[str]
) -> None:
    texts = [f'He said "{text}", and left{text}.' for text in ["yes", *texts]]
    path = tmp_path_factory.mktemp("spark") / "a.csv"
    escaped = [text.replace('"', '\\"') for text in texts]
    with path.open("w", newline="", encoding="utf-8") as file:
        file.writelines([f"id{mark}text\n", *(f'{n}{mark}"{text}"\n' for n, text in enumerate(escaped))])
    found, rejects = read(path, separator=mark)
    assert ([row["text"] for row in found], rejects) == (texts, [])


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_a_table_that_names_its_separator_as_excel_does_is_read_by_it(
    tmp_path: Path, mark: str, begin: str
) -> None:
    rows = [["id", "text"], ["a", "One; two, three|four."], ["b", "Five."]]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(f"{begin}sep={mark}\r\n")
        csv.writer(file, delimiter=mark).writerows(rows)
    for separator in (None, ";"):
        found, rejects = read(tmp_path / "a.csv", separator=separator)
        assert ([row["text"] for row in found], rejects) == ([rows[1][1], rows[2][1]], [])
