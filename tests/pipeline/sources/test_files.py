"""The user's own files: which are found, how they are named, what is set aside."""

import bz2
import gzip
import json
import lzma
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.sources import open_source
from pipeline.sources.documents import BATCH_BYTES, document_id, location, own_id
from pipeline.sources.files import FilesConfig, FilesSource
from pipeline.sources.source import ChangedError, Reason, Rejected, SourceError, Unit
from tests.pipeline.sources.reading import Row, documents_and_rejects
from tests.rows import jsonl


def read(*paths: Path | str, **config: Any) -> tuple[list[Row], list[tuple[str, int | None, str]]]:
    """The documents, and file, row and reason of what was set aside."""
    rows, rejects = documents_and_rejects(*paths, **config)
    return rows, [(reject.file, reject.row, str(reject.reason)) for reject in rejects]


def texts(*paths: Path | str, **config: Any) -> list[str]:
    rows, rejects = read(*paths, **config)
    assert rejects == []
    return [row["text"] for row in rows]


def units(*paths: Path | str, **config: Any) -> list[Unit]:
    return open_source("c", FilesConfig(paths=tuple(map(str, paths)), **config)).units()


def test_every_format_and_compression_gives_the_same_text(tmp_path: Path) -> None:
    content = b'{"text": "one"}\n{"text": "two"}\n'
    zstd = pa.Codec("zstd").compress(content).to_pybytes()
    compressed = {
        "jsonl.gz": gzip.compress(content),
        "jsonl.bz2": bz2.compress(content),
        "json.xz": lzma.compress(content),
        "json.zst": zstd,
    }
    for suffix, data in {
        "jsonl": content,
        "JSONL": content,
        "ndjson": content,
        "csv": b"text\none\ntwo\n",
        **compressed,
    }.items():
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(data)
        assert texts(path) == ["one", "two"], suffix
    pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == ["one", "two"]
    for name, data in {
        "a.txt": b"one\n\ntwo",
        "a.md": b"one\n\ntwo",
        "b.txt.gz": gzip.compress(b"one\n\ntwo"),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert texts(tmp_path / name) == ["one\n\ntwo"]


def test_compressed_files_glued_together_are_read_to_the_end(tmp_path: Path) -> None:
    first, second = b'{"text": "one"}\n', b'{"text": "two"}\n'
    skippable = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    codec = pa.Codec("zstd")
    (tmp_path / "a.jsonl.zst").write_bytes(
        codec.compress(first).to_pybytes() + skippable + codec.compress(second).to_pybytes()
    )
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(first) + gzip.compress(second))
    assert texts(tmp_path / "*") == ["one", "two", "one", "two"]


def test_ids_come_from_the_source_and_otherwise_from_file_and_row(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"id": "x", "text": "own"},
        {"id": 7, "text": "number"},
        {"text": "none"},
        {"id": None, "text": "null"},
    )
    rows, _ = read(path)
    assert rows[0]["id"] == document_id("c", own_id("x"))
    assert rows[1]["id"] == document_id("c", own_id("7"))
    assert len({row["id"] for row in rows}) == 4
    moved = jsonl(
        tmp_path / "elsewhere" / "a.jsonl",
        {"id": "x", "text": "own"},
        {"id": 7, "text": "number"},
        {"text": "none"},
    )
    assert [row["id"] for row in read(moved)[0]] == [row["id"] for row in rows[:3]]


def test_adding_a_file_shifts_no_id_and_no_fingerprint(tmp_path: Path) -> None:
    jsonl(tmp_path / "m.jsonl", {"text": "m1"}, {"text": "m2"})
    before, known = read(tmp_path / "*.jsonl")[0], units(tmp_path / "*.jsonl")
    jsonl(tmp_path / "a.jsonl", {"text": "a1"})
    assert read(tmp_path / "*.jsonl")[0][1:] == before
    assert units(tmp_path / "*.jsonl")[1:] == known
    jsonl(tmp_path / "m.jsonl", {"text": "m1"}, {"text": "changed"})
    assert units(tmp_path / "*.jsonl")[1].fingerprint != known[0].fingerprint


def test_a_column_that_was_named_as_id_must_hold_one(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"key": "k", "text": "good"},
        {"key": [1], "text": "list"},
        {"text": "absent"},
        {"key": "k", "text": "again"},
    )
    rows, rejects = read(path, id_column="key")
    assert [row["text"] for row in rows] == ["good"]
    assert rejects == [("a.jsonl", 2, "bad_id"), ("a.jsonl", 3, "bad_id"), ("a.jsonl", 4, "duplicate_id")]


def test_other_columns_become_metadata_and_url_keeps_its_place(tmp_path: Path) -> None:
    row = {"id": "x", "body": "text", "url": "https://a.example/", "title": "T", "score": 0.5, "tags": ["a"]}
    found = read(jsonl(tmp_path / "a.jsonl", row), text_column="body")[0][0]
    assert (found["text"], found["url"], found["source"]) == ("text", "https://a.example/", "a.jsonl")
    assert json.loads(found["metadata"]) == {"title": "T", "score": 0.5, "tags": ["a"]}


def test_max_documents_takes_the_first_over_all_files_with_the_same_ids(tmp_path: Path) -> None:
    for name in "ab":
        jsonl(tmp_path / f"{name}.jsonl", *({"text": f"{name}{n}"} for n in range(3)))
    everything = read(tmp_path / "*")[0]
    assert read(tmp_path / "*", max_documents=4)[0] == everything[:4]
    assert read(tmp_path / "*", max_documents=99)[0] == everything
    (unit,) = units(tmp_path / "*", max_documents=4)
    jsonl(tmp_path / "b.jsonl", {"text": "other"})
    assert units(tmp_path / "*", max_documents=4)[0].fingerprint != unit.fingerprint


def test_a_source_works_the_same_in_another_process(tmp_path: Path) -> None:
    source = open_source("c", FilesConfig(paths=(str(jsonl(tmp_path / "a.jsonl", {"text": "t"})),)))
    copy = pickle.loads(pickle.dumps(source))
    assert copy.units() == source.units()
    assert copy.version == source.version


def test_bad_files_are_named_and_their_neighbors_arrive(tmp_path: Path) -> None:
    jsonl(tmp_path / "good.jsonl", {"text": "good"})
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "array.json").write_text('{\n "rows": [\n {"text": "a"}\n]}')
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing more")
    (tmp_path / "noise.jsonl.gz").write_bytes(b"not gzip at all")
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    rows, rejects = read(tmp_path / "*")
    assert [row["text"] for row in rows] == ["good"]
    assert rejects == [
        ("array.json", None, "invalid_json"),
        ("broken.parquet", None, "broken_parquet"),
        ("dangling.txt", None, "unreadable"),
        ("empty.jsonl", None, "empty_file"),
        ("folder.jsonl", None, "is_a_directory"),
        ("image.png", None, "unsupported_format"),
        ("noise.jsonl.gz", None, "broken_compression"),
    ]
    assert read(tmp_path / "folder")[1] == [("folder", None, "is_a_directory")]


def test_a_file_without_permission_is_set_aside(tmp_path: Path) -> None:
    jsonl(tmp_path / "good.jsonl", {"text": "good"})
    jsonl(tmp_path / "locked.jsonl", {"text": "locked"}).chmod(0)
    jsonl(tmp_path / "closed" / "inside.jsonl", {"text": "inside"}).parent.chmod(0)
    jsonl(tmp_path / "listed" / "below" / "inside.jsonl", {"text": "inside"})
    (tmp_path / "listed").chmod(0o444)  # whose names can be read, and nothing else of it
    (tmp_path / "link.jsonl").symlink_to("closed/inside.jsonl")
    code = (
        "import os, sys\n"
        "from pipeline.sources import open_source\nfrom pipeline.sources.files import FilesConfig\n"
        "def read(path):\n"
        "    source, rejects = open_source('c', FilesConfig(paths=(path,))), []\n"
        "    documents = sum(batch.num_rows for unit in source.units() for batch in source.read(unit, "
        "rejects))\n"
        "    return documents, [(r.file, str(r.reason)) for r in rejects]\n"
        "os.chdir(sys.argv[1])\n"
        "read('good.jsonl')  # what reading imports may lie where nobody else may read\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "print(*read('*.jsonl'))\n"
        "print(*read('**/*.jsonl'))\n"
        "print(*read('listed/*.jsonl'))"
    )
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.owner() == tmp_path.owner() and os.access(folder, os.W_OK) and "pytest" in str(folder):
            folder.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "1 [('link.jsonl', 'no_permission'), ('locked.jsonl', 'no_permission')]",
        "1 [('closed', 'no_permission'), ('link.jsonl', 'no_permission'), ('listed', 'no_permission'), "
        "('locked.jsonl', 'no_permission')]",
        "0 [('listed', 'no_permission')]",
    ], done.stderr


def noisy_jsonl(documents: int) -> bytes:
    return b"".join(b'{"text": "%s"}\n' % os.urandom(300).hex().encode() for _ in range(documents))


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("gz", gzip.compress),
        ("bz2", bz2.compress),
        ("xz", lambda data: lzma.compress(data, preset=0)),
        ("zst", lambda data: pa.Codec("zstd").compress(data).to_pybytes()),
    ],
)
def test_everything_before_the_break_of_a_truncated_file_arrives(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    content = noisy_jsonl(3000)
    whole = compress(content)
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(whole[: len(whole) // 2])
    jsonl(tmp_path / "b.jsonl", {"text": "neighbor"})
    rows, rejects = read(tmp_path / "*")
    expected = [json.loads(line)["text"] for line in content.splitlines()]
    found = [row["text"] for row in rows]
    assert found == [*expected[: len(found) - 1], "neighbor"]
    # bzip2 decodes whole blocks of 900 KB only
    assert abs(len(found) - 1500) < (1500 if suffix == "bz2" else 300)
    assert rejects == [(f"a.jsonl.{suffix}", None, "broken_compression")]


def test_a_file_without_permission_since_it_was_listed_or_with_other_content_ends_the_reading(
    tmp_path: Path,
) -> None:
    """What was set aside now would be left out also once the file is back, as its content is the same."""
    changes: dict[str, Callable[[Path], object]] = {
        "the file is gone": Path.unlink,
        "Is a directory": lambda path: (path.unlink(), path.mkdir()),
        "changed while it was read": lambda path: path.write_text('{"text": "b"}\n'),
        "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
        "changed while": lambda path: path.write_text(""),
    }
    for number, (why, change) in enumerate(changes.items()):
        path = jsonl(tmp_path / f"{number}.jsonl", {"text": "a"})
        jsonl(tmp_path / f"{number}-more.jsonl", {"text": "more"})
        for limit in (None, 5):
            jsonl(path, {"text": "a"})
            source = FilesSource("c", FilesConfig(paths=(f"{tmp_path}/{number}*",), max_documents=limit))
            listed = source.units()
            change(path)
            with pytest.raises(ChangedError, match=rf"{number}\.jsonl .*{why}.*run again once"):
                [batch for unit in listed for batch in source.read(unit, [])]
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.csv", "a.parquet"])
def test_a_file_that_is_touched_moved_or_appended_to_while_it_is_read_gives_what_it_held(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    content = {"a.jsonl": '{"text": "a"}\n', "a.csv": "text\na\n"}.get(name, "a")
    path.write_text(content)
    if name == "a.parquet":
        pq.write_table(pa.table({"text": ["a"]}), path)
    source, rejects = FilesSource("c", FilesConfig(paths=(str(path),))), list[Rejected]()
    listed = source.units()
    with path.open("ab") as more:
        more.write(path.read_bytes() + b'{"text": "half')
    (tmp_path / "copy").write_bytes(path.read_bytes())
    (tmp_path / "copy").replace(path)
    rows = [row for unit in listed for batch in source.read(unit, rejects) for row in batch.to_pylist()]
    assert ([row["text"] for row in rows], rejects) == (["a"], [])
    assert source.units() != listed


def test_broken_csv_rows_are_set_aside(tmp_path: Path) -> None:
    rows = [
        b"id,text,note",
        b"1,plain,n",
        b'2,"with\nnewline, and comma",n',
        b"3,short",
        b"4,bad \xff byte,n",
        b'5,"x"y,n',
        b"6," + b"long " * 40_000 + b",n",
        b"7,,n",
    ]
    (tmp_path / "a.csv").write_bytes(b"\r\n".join(rows))
    found, rejects = read(tmp_path / "a.csv")
    assert [row["text"][:24] for row in found] == [
        "plain",
        "with\nnewline, and comma",
        "long long long long long",
    ]
    assert json.loads(found[0]["metadata"]) == {"note": "n"}
    assert [reject[2] for reject in rejects] == ["broken_csv", "invalid_utf8", "broken_csv", "empty_text"]


def test_reading_holds_one_batch_however_long_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "%s"}\n' % (b"x" * 100_000) * 400)
    source = open_source("c", FilesConfig(paths=(str(path),)))
    start = pa.total_allocated_bytes()
    for batch in source.read(source.units()[0], []):
        assert pa.total_allocated_bytes() - start < 3 * BATCH_BYTES
        assert batch.nbytes < BATCH_BYTES * 5 // 4


def test_files_read_alone_keep_the_ids_that_they_bring(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", {"id": "x", "text": "one"}, {"id": 7, "text": "two"}, {"text": "three"})
    given = document_id("c", location("a.jsonl", 3))
    jsonl(
        tmp_path / "b.jsonl",
        {"id": "x", "text": "again"},
        {"id": given, "text": "the id of a document without one"},
    )
    rejects: list[Rejected] = []
    source = FilesSource("c", FilesConfig(paths=(str(tmp_path / "*.jsonl"),)), keep_ids=True)
    rows = [row for batch in source.read_all(rejects) for row in batch.to_pylist()]
    assert [(row["id"], row["text"]) for row in rows] == [("x", "one"), ("7", "two"), (given, "three")]
    assert [(reject.file, reject.row, reject.reason) for reject in rejects] == [
        ("b.jsonl", 1, "duplicate_id"),
        ("b.jsonl", 2, "duplicate_id"),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "https://user:s3cret@example.org/a.jsonl",
        "https://s3cret@example.org/a.jsonl",
        "s3://key:s3cret@bucket/a.jsonl",
    ],
)
def test_a_url_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SourceError, match="in the environment instead") as caught:
        FilesSource("c", FilesConfig(paths=(url,))).units()
    assert "s3cret" not in str(caught.value)


def test_a_csv_quote_that_never_closes_is_named_where_it_opens_with_the_bytes_it_loses(
    tmp_path: Path,
) -> None:
    rows = [f"{row},text of row {row}\n" for row in range(2, 402)]
    rows[98] = rows[98].replace(",", ',"')
    content = "id,text\n" + "".join(rows)
    (tmp_path / "a.csv").write_text(content)
    found, rejects = documents_and_rejects(tmp_path / "a.csv")
    assert len(found) == 98
    assert [(reject.row, reject.reason) for reject in rejects] == [(100, Reason.BROKEN_CSV)]
    assert "a quote that opens in this row never closes" in rejects[0].detail
    assert rejects[0].lost_bytes == len("".join(rows[98:]))


def test_a_csv_file_without_the_column_or_a_header_is_one_reject_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body\n" + "t,b\n" * 50)
    (tmp_path / "b.csv").write_text('title,"te"xt\n' + "t,b\n" * 50)
    (tmp_path / "c.csv").write_text("text,text\n" + "t,b\n" * 50)
    rejects: list[Rejected] = []
    source = open_source("c", FilesConfig(paths=(str(tmp_path / "*.csv"),)))
    assert [batch for unit in source.units() for batch in source.read(unit, rejects)] == []
    assert [(reject.file, reject.row, reject.reason) for reject in rejects] == [
        ("a.csv", None, Reason.NO_TEXT),
        ("b.csv", None, Reason.BROKEN_CSV),
        ("c.csv", None, Reason.NO_TEXT),
    ]
    assert rejects[0].detail == (
        "no column 'text': name the one of the text in `text_column`; there are 'title', 'body'"
    )
