"""A folder or a file that cannot be learned, and a place that cannot be used, is told in one sentence."""

import bz2
import gzip
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pipeline.cli import main
from pipeline.sources.formats.other_formats import XML
from pipeline.start.choose import Wishes, choose
from pipeline.start.folder.look import NothingReadableError
from pipeline.start.reasons import notes
from tests.folders import ENGLISH
from tests.pipeline.start.test_start import fixed_speed, judged

OFFICE, PACKED = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), b"PK\3\4" + bytes(100)

RECEIVED = b"Received: from mail.example.org\r\n\tby mx.example.org; Mon, 1 Jan 2024 10:00:00 +0000\r\n" * 60

OTHER_FORMATS = {
    "a.doc": (OFFICE, "save it as .docx"),
    "a.xls": (OFFICE, "save it as .csv"),
    "a.msg": (OFFICE, "as .mbox or .eml"),
    "a.dot": (b"{\\rtf1\\ansi text}", "save it as .docx"),
    "wiki_00": (b'{"id": "1", "text": "of wikiextractor"}\n' * 9, "name it .jsonl"),
    "a.ppt": (OFFICE, "`pdftotext`"),
    "a.ods": (PACKED, "save it as .csv"),
    "a.npz": (PACKED, "write it as .parquet"),
    "a.jar": (PACKED, "unpack it"),
    "a.fb2": (b'<?xml version="1.0"?><FictionBook>', "`ebook-convert`"),
    "a.mobi": (b"book" + bytes(60) + b"BOOKMOBI", "`ebook-convert`"),
    "a.svg": (b'<?xml version="1.0"?><svg>', "it holds no text"),
    "a.ttml": (b'<?xml version="1.0"?><tt>', "convert it to .srt"),
    "a.lz": (b"LZIP\1\x0c\0", "compress it with gzip or zstd"),
    "a.pst": (b"!BDN" + bytes(500), "as .mbox or .eml"),
    "library.rdf": (b'<?xml version="1.0"?><rdf:RDF>', "XML, whose tags would be learned"),
    "enwiki-pages-articles1.xml-p1p41242.bz2": (bz2.compress(b"<mediawiki>\n<page>"), "wikiextractor --json"),
    "dump.gz": (gzip.compress(b'<?xml version="1.0"?><posts>'), "XML, whose tags would be learned"),
    "table.xyz.gz": (gzip.compress(b"1 2 3"), "or name it .txt.gz if it is text"),
    "backup": (gzip.compress(b"text"), "the file is packed: unpack it"),
    "report": (PACKED, "packed, as Office documents are"),
    "database": (b"SQLite format 3\0" + bytes(100), "write its text into a table"),
    "core": (b"core \0 of a program " * 9, "the file is not text"),
    # What Thunderbird and Maildir keep.
    "INBOX": (b"From - Mon Jan  1 10:00:00 2024\r\nX-Mozilla-Status: 0001\r\n", "name it .mbox"),
    "cur/1700000000.M0P1.host:2,S": (RECEIVED + b"From: a@example.org\r\n\r\nText\r\n", "name it .eml"),
    "letter": (b"From Monday on, we meet at 10:00.\n", "name it .txt"),
    "notes.log": (b"Date: Monday\nFrom: Ann\n\nText\n", "name it .txt"),
}


def test_files_that_are_no_language_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    (folder / "all.txt").write_text(" ".join(str(number * 7_919) for number in range(20_000)))
    chosen = choose(judged(folder), Wishes(3600.0), fixed_speed())
    assert "Most of numbers is in no language, as numbers and encoded files are." in notes(chosen)


def test_a_file_that_is_no_text_is_named_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "text.txt").write_text("\n\n".join(ENGLISH))
    for name, begin in (("a.xlsx", b"PK\3\4"), ("b.zip", b"PK\3\4"), ("c.pdf", b"%PDF-1.7")):
        (folder / name).write_bytes(begin + bytes(100))
    (folder / "d.tar.gz").write_bytes(b"\x1f\x8b\x08")
    (folder / "d.tgz").write_bytes(b"\x1f\x8b\x08")
    (folder / "e.ipynb").write_text(json.dumps({"cells": []}))
    (folder / "e.xml").write_text("<mediawiki><page>")
    (folder / "e.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (folder / "README").write_text("Read me.")
    (folder / "f.txt").symlink_to("nowhere")
    (folder / "g.jsonl").write_text(json.dumps({"pages": [{"text": text} for text in ENGLISH]}))
    (folder / "h.jsonl").write_text(json.dumps({"id": 1, "doc": {"text": "x"}}))
    unread = {name: why for name, (why, _) in judged(folder).unread.items()}
    assert unread == {
        "a.xlsx": "save it as .csv",
        "b.zip": "unpack it",
        "c.pdf": "write its text into a text file (`pdftotext`)",
        "d.tar.gz": "unpack it",
        "d.tgz": "unpack it",
        "e.ipynb": "the file has no text",
        "e.xml": XML,
        "e.png": "it holds no text",
        "README": "a format that is not read: name it .txt if it is plain text",
        "f.txt": "the link leads to no file",
        "g.jsonl": "its rows are a list within one object: write them alone (jq -c '.pages[]')",
        "h.jsonl": "no column holds a text in its first 1 rows; there are 'doc' (dict), 'id' (int)",
    }


@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_a_file_of_another_format_is_told_what_to_do_whatever_its_bytes(tmp_path: Path, name: str) -> None:
    content, to_do = OTHER_FORMATS[name]
    file = tmp_path / "texts" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(NothingReadableError, match=f"{name}: ") as refused:
        judged(tmp_path / "texts")
    assert to_do in str(refused.value)


def test_a_place_for_the_recipe_that_is_read_only_is_told_before_anything_is_measured() -> None:
    program = """
import os, sys
from pipeline.cli import main, start
if os.geteuid() == 0:
    os.setuid(65534)
sys.exit(main(["start", sys.argv[1], "--hours", "1"]))
"""
    with TemporaryDirectory() as directory:
        folder = Path(directory, "texts")
        folder.mkdir()
        (folder / "all.txt").write_text("\n\n".join(ENGLISH))
        folder.parent.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True)
        folder.parent.chmod(0o755)
    why = "no recipe may be written there: name another file with -o"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {folder}.yaml: {why}\n")


def test_a_folder_that_holds_the_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start would learn from what this one has made, and so would a training that goes on."""
    (tmp_path / "all.txt").write_text("\n\n".join(ENGLISH))
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "made" / "store"))
    assert main(["start", str(tmp_path), "--hours", "1", "--plan"]) == 2
    assert f"error: {tmp_path}: holds the store {tmp_path}/made/store, so" in capsys.readouterr().err


def test_a_disk_that_is_full_is_told_where_a_library_does_not_say_what_it_writes(tmp_path: Path) -> None:
    """The file of the language model is unpacked into the directory for temporary files."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "all.txt").write_text("\n\n".join(ENGLISH))
    program = """
import resource, sys
from pipeline.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
sys.exit(main(["start", sys.argv[1], "--hours", "1", "--plan"]))
"""
    command = [sys.executable, "-B", "-c", program, str(tmp_path / "texts")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no file can be written (File too large): free some space, in " in done.stderr
