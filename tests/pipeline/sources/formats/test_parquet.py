"""Parquet files with a text column, whole and damaged."""

import datetime
import decimal
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.sources import open_source
from pipeline.sources.files import FilesConfig
from pipeline.sources.source import Rejected
from tests.pipeline.sources.reading import read


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=lambda kind: str(kind),
)
def test_every_type_that_holds_text_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"text": pa.array(["one", None, "zwei 😀"]).cast(kind)}), tmp_path / "a.parquet")
    rows, rejects = read(tmp_path / "a.parquet")
    assert [row["text"] for row in rows] == ["one", "zwei 😀"]
    assert rejects == [(2, "null_text")]


def test_what_json_can_hold_becomes_metadata(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["t"],
            "day": [datetime.date(2024, 5, 6)],
            "price": [decimal.Decimal("1.50")],
            "ratio": [float("nan")],
            "nested": [[{"a": 1}]],
            "blob": [b"\xff"],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert json.loads(read(tmp_path / "a.parquet")[0][0]["metadata"]) == {
        "day": "2024-05-06",
        "price": "1.50",
        "ratio": None,
    }


def test_small_row_groups_arrive_in_order_as_one_batch(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"text": [f"document {n}" if n != 15 else None for n in range(30)]}),
        tmp_path / "a.parquet",
        row_group_size=10,
    )
    source, rejects = open_source("c", FilesConfig(paths=(str(tmp_path / "a.parquet"),))), list[Rejected]()
    (batch,) = source.read(source.units()[0], rejects)
    assert batch.column("text").to_pylist() == [f"document {n}" for n in range(30) if n != 15]
    assert [reject.row for reject in rejects] == [16]


def test_strings_that_are_not_utf8_are_set_aside_row_by_row(tmp_path: Path) -> None:
    broken = pa.array([b"good", b"\xff\xfe", b"\xed\xa0\x80", b"also good"]).view(pa.string())
    pq.write_table(pa.table({"text": broken}), tmp_path / "a.parquet")
    rows, rejects = read(tmp_path / "a.parquet")
    assert [row["text"] for row in rows] == ["good", "also good"]
    assert rejects == [(2, "invalid_utf8"), (3, "invalid_utf8")]


def test_a_damaged_row_group_costs_its_own_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"document {n}" for n in range(30)]})
    pq.write_table(
        table, path, row_group_size=10, compression="none", use_dictionary=False, write_page_checksum=True
    )
    data = bytearray(path.read_bytes())
    damaged = data.index(b"document 15")
    data[damaged] ^= 1
    path.write_bytes(data)
    rows, rejects = read(path)
    assert [row["text"] for row in rows] == [f"document {n}" for n in [*range(10), *range(20, 30)]]
    assert rejects == [(11, "broken_parquet")]


def test_a_table_without_the_text_column_names_the_columns_it_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["t"], "n": [1]}), tmp_path / "a.parquet")
    source = open_source("c", FilesConfig(paths=(str(tmp_path / "a.parquet"),)))
    rejects: list[Rejected] = []
    assert list(source.read(source.units()[0], rejects)) == []
    assert rejects[0].detail == (
        "no column 'text': name the one of the text in `text_column`; there are 'body', 'n'"
    )
    assert read(tmp_path / "a.parquet", text_column="n")[1] == [(None, "text_not_a_string")]
    assert read(tmp_path / "a.parquet", text_column="body")[0][0]["text"] == "t"


def test_max_documents_stops_within_a_row_group(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [f"d{n}" for n in range(50)]}), tmp_path / "a.parquet")
    assert [row["text"] for row in read(tmp_path / "a.parquet", max_documents=3)[0]] == ["d0", "d1", "d2"]


def test_two_text_columns_set_aside_their_file_and_not_the_run(tmp_path: Path) -> None:
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "a.parquet")
    pq.write_table(pa.table([["one"], [1], [2]], names=["text", "n", "n"]), tmp_path / "b.parquet")
    rows, rejects = read(tmp_path / "*.parquet")
    assert [row["text"] for row in rows] == ["one"]
    assert rejects == [(None, "no_text")]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1 << 62, pa.timestamp("us")),
        (1 << 62, pa.timestamp("us", tz="Mars/Olympus")),
        (1 << 62, pa.duration("s")),
        ((1 << 31) - 1, pa.date32()),
    ],
    ids=str,
)
def test_a_time_that_python_cannot_hold_becomes_text(tmp_path: Path, value: int, kind: pa.DataType) -> None:
    table = pa.table({"text": ["one", None], "at": pa.array([value, None], kind)})
    pq.write_table(table, tmp_path / "a.parquet")
    rows, _ = read(tmp_path / "a.parquet")
    assert json.loads(rows[0]["metadata"]) == {"at": f"{value} as {kind}"}
