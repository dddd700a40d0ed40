"""A file whose first bytes contradict its name is one reject with the remedy, whatever its kind. No file of
the right kind is taken for another.
"""

import bz2
import gzip
import io
import json
import lzma
import shutil
import sqlite3
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.formats.first_bytes import is_one_a_line, not_text
from tests.pipeline.sources.reading import documents_and_rejects

ROWS = [{"id": "a", "text": "The first text."}, {"id": "b", "text": "The second, with a € and an é."}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
CSV = 'id,text\na,The first text.\nb,"The second, with a € and an é."\n'
TEXT = "The first text.\n\nThe second, with a € and an é.\n"
CONTENT = {
    "jsonl": LINES,
    "json": LINES,
    "ndjson": LINES,
    "csv": CSV,
    "tsv": CSV.replace(",", "\t"),
    "txt": TEXT,
    "md": TEXT,
}


def zipped(content: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside", content)
    return archive.getvalue()


def parquet(content: bytes) -> bytes:
    table = io.BytesIO()
    pq.write_table(pa.table({"text": [content.decode()]}), table)
    return table.getvalue()


def tarred(content: bytes) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        member = tarfile.TarInfo("inside")
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def arrow(content: bytes) -> bytes:
    table = io.BytesIO()
    feather.write_feather(pa.table({"text": [content.decode()]}), table)
    return table.getvalue()


def database(content: bytes) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table texts (text)")
        connection.execute("insert into texts values (?)", (content.decode(),))
        connection.commit()
        return connection.serialize()


PACKED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (gzip.compress, ".gz"),
    "zstd": (zstandard.compress, ".zst"),
    "bzip2": (bz2.compress, ".bz2"),
    "xz": (lzma.compress, ".xz"),
    "zip": (zipped, "unpack it"),
    "Parquet": (parquet, ".parquet"),
    "tar": (tarred, "unpack it"),
    "Arrow": (arrow, ".parquet"),
    "SQLite": (database, "table"),
    "RTF": (lambda content: b"{\\rtf1\\ansi " + content + b"}", "name it .rtf"),
    "not text": (lambda content: content + bytes(200), "zero"),
}


def only_reject(path: Path, **config: object) -> str:
    rows, rejects = documents_and_rejects(path, **config)
    assert rows == []
    assert [one.row for one in rejects] == [None], rejects
    assert rejects[0].lost_bytes == path.stat().st_size
    return rejects[0].detail


@pytest.mark.parametrize("kind", CONTENT)
@pytest.mark.parametrize("what", PACKED)
def test_packed_data_under_a_plain_name_is_named_with_what_to_do(
    tmp_path: Path, what: str, kind: str
) -> None:
    pack, remedy = PACKED[what]
    (tmp_path / f"a.{kind}").write_bytes(pack(CONTENT[kind].encode()))
    said = only_reject(tmp_path / f"a.{kind}")
    assert what in said and remedy in said


JSON_FILES = {
    "an array in one line": json.dumps(ROWS),
    "an array, one object a line": "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
    "an array that begins in its first line": "[" + ",\n ".join(map(json.dumps, ROWS)) + "]",
    "an array, indented": json.dumps(ROWS, indent=2),
    "an array, by Windows": json.dumps(ROWS, indent=2).replace("\n", "\r\n"),
    "after white space": "\n  " + json.dumps(ROWS, indent=2),
    "objects, indented": "\n".join(json.dumps(row, indent=2) for row in ROWS),
    "lines with commas": ",\n".join(map(json.dumps, ROWS)) + ",\n",
    "ended by CR": "\r".join(map(json.dumps, ROWS)) + "\r",
    "end to end": "".join(map(json.dumps, ROWS)),
    "beside one another": " ".join(map(json.dumps, ROWS)) + "\n",
}
ROWS_IN_AN_OBJECT = {
    "indented": (json.dumps({"data": ROWS}, indent=2), "jq -c '.data[]'"),
    "by lines": ('{"rows": [\n' + ",\n".join(map(json.dumps, ROWS)) + "\n]}", "jq -c '.rows[]'"),
}


@pytest.mark.parametrize("kind", ["jsonl", "json", "ndjson"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("content", JSON_FILES)
def test_json_that_is_not_one_object_a_line_is_read(
    tmp_path: Path, content: str, mark: str, kind: str
) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes((mark + JSON_FILES[content]).encode())
    rows, rejects = documents_and_rejects(path)
    assert [row["text"] for row in rows] == [row["text"] for row in ROWS]
    assert rejects == []


@pytest.mark.parametrize("kind", ["jsonl", "json", "ndjson"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("content", ROWS_IN_AN_OBJECT)
def test_rows_in_an_object_are_one_reject(tmp_path: Path, content: str, mark: str, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    text, said = ROWS_IN_AN_OBJECT[content]
    path.write_text(mark + text, encoding="utf-8")
    assert said in only_reject(path)


@pytest.mark.parametrize(
    "broken",
    ['{"text": "cut off', '{"text": "no brace"', "nonsense", '"text"', "[1, 2]", "null", '{"text": 1}}', ""],
)
def test_a_first_line_that_is_broken_costs_itself_only(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{broken}\n{LINES}", encoding="utf-8")
    rows, rejects = documents_and_rejects(path)
    assert [row["text"] for row in rows] == [row["text"] for row in ROWS]
    assert [one.row for one in rejects] == ([1] if broken else [])


@given(
    st.lists(
        st.dictionaries(st.text(), st.text() | st.floats() | st.lists(st.text()), max_size=3), min_size=1
    )
)
def test_no_json_lines_are_taken_for_something_else(rows: list[dict[str, object]]) -> None:
    content = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode("utf-8", "replace")
    assert is_one_a_line(content, whole=True)
    assert is_one_a_line(content[: len(content) // 2], whole=False)
    assert not_text(content, "a.jsonl", "utf-8") is None


SAID = {"text": "Hi", "text_entities": [{"type": "plain", "text": "Hi"}], "from": "Ann", "from_id": "user1"}
EXPORTS = {
    "Telegram": {"name": "Ann", "messages": [SAID]},
    "all of Telegram": {"chats": {"about": "", "list": [{"name": "Ann", "messages": [SAID]}]}},
    "Discord": {
        "guild": {"id": "1"},
        "messages": [{"content": "Hi", "author": {"name": "Ann", "isBot": False}}],
    },
    "Facebook": {"participants": [{"name": "Ann"}], "messages": [{"sender_name": "Ann", "content": "Hi"}]},
    "Google": {"messages": [{"creator": {"name": "Ann"}, "created_date": "Tuesday", "text": "Hi"}]},
    "Hangouts": {
        "conversations": [
            {
                "conversation": {
                    "conversation": {"participant_data": [{"id": {"gaia_id": "1"}, "fallback_name": "Ann"}]}
                },
                "events": [
                    {
                        "conversation_id": {"id": "x"},
                        "sender_id": {"gaia_id": "1"},
                        "chat_message": {"message_content": {"segment": [{"type": "TEXT", "text": "Hi"}]}},
                    }
                ],
            }
        ]
    },
    "Skype": {
        "conversations": [
            {
                "MessageList": [
                    {
                        "displayName": "Ann",
                        "originalarrivaltime": "2024",
                        "messagetype": "RichText",
                        "content": "<b>Hi</b>",
                    }
                ]
            }
        ]
    },
    "Studio": {
        "chunkedPrompt": {"chunks": [{"text": "Hi", "role": "user"}, {"text": "Hey", "role": "model"}]}
    },
}


@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_of_a_chat_is_told_how_its_messages_become_text(tmp_path: Path, export: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(EXPORTS[export], indent=1))
    reject = only_reject(path)
    assert export.split()[-1] in reject and "jq -r '" in reject and reject.endswith(")")
    if shutil.which("jq"):
        command = reject[reject.index("(jq") + 1 : -1]
        said = subprocess.run(
            ["bash", "-c", command], input=path.read_bytes(), capture_output=True, check=True
        )
        names = ("User: Hi", "Assistant: Hey") if export == "Studio" else ("Ann: Hi",)
        assert said.stdout.decode().splitlines() == [*names]


def test_an_archive_of_twitter_is_not_learned_as_a_program(tmp_path: Path) -> None:
    path = tmp_path / "tweets.js"
    path.write_text('window.YTD.tweets.part0 = [ {"tweet": {"full_text": "Hi"}} ]')
    assert "full_text" in only_reject(path)


@given(st.text(min_size=8).filter(lambda text: "\0" not in text))
def test_no_text_is_taken_for_something_else(text: str) -> None:
    content = text.encode("utf-8", "replace")
    if content[:2] not in (b"PK", b"PA", b"%P"):
        assert not_text(content, "a.txt", "utf-8") is None


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_is_named_and_read_once_it_is_set(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV.replace(",", separator), encoding="utf-8")
    assert f"set `separator: {json.dumps(separator)}`" in only_reject(path)
    rows, rejects = documents_and_rejects(path, separator=separator)
    assert (len(rows), rejects) == (2, [])


def test_a_header_shows_its_spaces_and_what_to_set(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id, text\na,The first text.\n", encoding="utf-8")
    said = only_reject(path)
    assert "' text'" in said and "`text_column`" in said
    rows, _ = documents_and_rejects(path, text_column=" text")
    assert rows[0]["text"] == "The first text."


@pytest.mark.parametrize("text", ["Rar! said the lion.", "ARROW1 is the first arrow.", f"{'a' * 257}ustar"])
def test_a_text_that_begins_as_an_archive_does_is_a_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    rows, rejects = documents_and_rejects(tmp_path / "a.txt")
    assert ([row["text"] for row in rows], rejects) == ([text], [])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.doc", "save it as .docx"),
        ("simplewiki-pages-articles.xml", "wikiextractor"),
        ("simplewiki-pages-articles.xml.bz2", "wikiextractor"),
        ("a.pdf", "pdftotext"),
        ("a.tar.gz", "unpack it"),
        ("a.ZIP", "unpack it"),
        ("a.xlsx", "save it as .csv"),
        ("a.mobi", ".epub"),
        ("a.warc.gz", "kind: warc"),
        ("README", "name it .txt"),
        ("server.log", "name it .txt"),
        ("a.jsonl.lz4", "gzip or zstd"),
    ],
)
def test_a_file_of_another_format_is_told_what_to_do(tmp_path: Path, name: str, remedy: str) -> None:
    (tmp_path / name).write_bytes(b"content")
    rows, [reject] = documents_and_rejects(tmp_path / name)
    assert (rows, str(reject.reason)) == ([], "unsupported_format") and remedy in reject.detail


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_text_in_another_encoding_is_told_which_setting_reads_it(tmp_path: Path, name: str) -> None:
    content = {"a.txt": "café", "a.csv": "text\ncafé\n", "a.jsonl": '{"text": "café"}\n'}[name]
    (tmp_path / name).write_bytes(content.encode("cp1252"))
    _, [reject] = documents_and_rejects(tmp_path / name)
    assert "set `encoding`" in reject.detail
    assert documents_and_rejects(tmp_path / name, encoding="cp1252")[0][0]["text"] == "café"


def test_of_a_quote_that_opens_in_an_earlier_line_both_lines_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,id\n"opens,3\nnext,4\n"again,5\nlast,6\n')
    rows, [reject] = documents_and_rejects(tmp_path / "a.csv")
    assert ([row["text"] for row in rows], reject.row) == (["last"], 4)
    assert "opens in line 2" in reject.detail and "written twice" in reject.detail
