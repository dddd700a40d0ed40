"""Folders as people have them: all of their text is read, or a sentence says why not."""

import bz2
import gzip
import json
import mailbox
import subprocess
import sys
import time
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.cli import main, start
from pipeline.recipe.recipe import Recipe
from pipeline.sources import open_source
from pipeline.sources.formats import html
from pipeline.sources.formats.other_formats import XML
from pipeline.sources.source import Rejected
from pipeline.sources.source_file import LocalFile
from pipeline.stages.edits import edit
from pipeline.start.choose import Wishes, choose
from pipeline.start.folder.look import NothingReadableError
from pipeline.start.folder.sample import HEAD_BYTES, sampled
from pipeline.start.reasons import notes
from tests.folders import ENGLISH
from tests.pipeline.start.test_start import SECONDS, fixed_speed, judged, recipe_of
from tests.thorough import ONE_IN

NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: not name.startswith(".") and len(name.encode()) < 80)


def read(recipe: Recipe) -> tuple[list[str], list[Rejected]]:
    """All texts of the corpora, and what was set aside."""
    texts, rejects = list[str](), list[Rejected]()
    for corpus in recipe.corpora:
        source = open_source(corpus.name, corpus.source)
        for unit in source.units():
            for batch in source.read(unit, rejects):
                texts += batch.column("text").to_pylist()
    return texts, rejects


@settings(max_examples=60, deadline=None)
@given(folder=NAMES, below=NAMES, file=NAMES, column=NAMES)
@example(folder="notes 📚", below="🎵", file="😀", column="текст 😀")
@example(folder="~", below="~root", file="~", column="~")
@example(folder="2024", below="12", file="1e5", column="1")
@example(folder="null", below="true", file="no", column="yes")
@example(folder="2024-01-01", below="[a]", file="*", column="{x: y}")
def test_whatever_a_folder_a_file_or_a_column_is_called_its_text_is_read(
    folder: str, below: str, file: str, column: str
) -> None:
    with TemporaryDirectory() as directory:
        place = Path(directory, folder)
        (place / below).mkdir(parents=True)
        (place / f"{file}.txt").write_text(ENGLISH[0])
        (place / below / f"{file}.md").write_text(ENGLISH[1])
        rows = [json.dumps({column: text}) for text in ENGLISH[2:30]]
        (place / below / f"{file}.jsonl").write_text("\n".join(rows))
        recipe, found = recipe_of(place, Wishes(3600.0))
        assert found.unread == {}
        texts, rejects = read(recipe)
    assert rejects == []
    assert sum(map(len, texts)) == sum(map(len, ENGLISH[:30]))


LONG = " ".join(ENGLISH) * 6  # more than what is looked at of a file at first


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_pages_and_mailboxes_are_text(tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    (tmp_path / "pages").mkdir()
    for number, text in enumerate(ENGLISH[:30]):
        said = text.replace("<", "&lt;")
        page = f"<html><body><nav><a href=x>Home</a></nav><article><p>{said}</p></article></body></html>"
        (tmp_path / "pages" / f"{number}.html").write_text(page)
    box = mailbox.mbox(tmp_path / "letters.mbox")
    for text in ENGLISH[30:60]:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", "A letter"
        message.set_content(text, cte="base64")
        message.add_attachment(bytes(20_000), maintype="image", subtype="png")
        box.add(message)
    box.close()
    recipe, found = recipe_of(tmp_path, Wishes(3600.0))
    assert found.unread == {}
    assert {corpus.kind.name for corpus in found.corpora} == {"web", "mail"}
    texts, rejects = read(recipe)
    assert rejects == []
    said = "\n".join(texts)
    assert "<p>" not in said and "Home" not in said and "Content-Type" not in said
    words = {line.strip() for text in ENGLISH[30:60] for line in text.splitlines()}
    assert words <= {line.strip() for line in said.splitlines()}
    letters = next(corpus for corpus in found.corpora if corpus.kind.name == "mail")
    assert letters.text_bytes < letters.bytes / 3


def test_pages_without_the_package_that_reads_them_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / f"{name}.html").write_text("<html><body><p>A page.</p></body></html>")
    (tmp_path / "d.txt").write_text(ENGLISH[0])
    html._extractor.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    _, found = recipe_of(tmp_path, Wishes(3600.0))
    assert "pip install" in found.unread["a.html"][0] and "web" in found.unread["a.html"][0]
    [line] = [line for line in start._folder_lines(found) if line.startswith("not read")]
    assert "a.html, b.html, c.html" in line and "pip install" in line


@pytest.mark.parametrize(
    "rows", [{"text": ENGLISH[:9], "said": [[{"by": "me"}]] * 9}, {"sizes": [[1, 2]] * 9}]
)
def test_a_parquet_file_of_which_one_bit_is_wrong_is_looked_at(tmp_path: Path, rows: dict[str, Any]) -> None:
    """The footer is changed in each byte, among them counts that become negative."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(rows), path, store_schema=False)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for place in range(footer, len(content), ONE_IN):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        found = sampled("a.parquet", LocalFile(path))
        assert found.shape is not None or found.problem


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_read_in_whatever_layout_and_settings_are_no_text(tmp_path: Path, indent: int | None) -> None:
    (tmp_path / "records").mkdir()
    rows = [{"title": f"record {number}", "abstract": text} for number, text in enumerate(ENGLISH[:40])]
    (tmp_path / "records" / "all.json").write_text(json.dumps(rows[:20], indent=indent))
    for number, row in enumerate(rows[20:]):
        (tmp_path / "records" / f"{number}.json").write_text(json.dumps(row, indent=indent))
    package = {"name": "records", "description": "A package.", "scripts": {"test": "run"}, "license": "MIT"}
    (tmp_path / "package.json").write_text(json.dumps(package, indent=indent))
    recipe, found = recipe_of(tmp_path, Wishes(3600.0))
    assert found.unread.keys() == {"package.json"}
    assert "settings" in found.unread["package.json"][0]
    texts, rejects = read(recipe)
    assert rejects == []
    assert sorted(texts) == sorted(ENGLISH[:40])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("books.jsonl", "".join(json.dumps({"text": LONG}) + "\n" for _ in range(3))),
        ("books.csv", "id,text\n" + "".join(f"{row},{quoted(LONG)}\n" for row in range(3))),
        ("books.csv", "text;id\n" + "".join(f"{quoted(LONG)};{row}\n" for row in range(3))),
    ],
    ids=["json lines", "commas", "semicolons"],
)
def test_a_table_whose_first_row_is_a_book_is_read(tmp_path: Path, name: str, content: str) -> None:
    assert len(LONG) > HEAD_BYTES
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / name).write_text(content)
    recipe, found = recipe_of(tmp_path / "books", Wishes(3600.0))
    assert found.unread == {}
    assert read(recipe) == ([LONG] * 3, [])


def test_rows_without_text_are_no_reason_to_refuse_those_that_have_one(tmp_path: Path) -> None:
    """Of a survey, most answers are empty, and sorted by them the table begins with these."""
    (tmp_path / "survey").mkdir()
    rows = [f"{row}," for row in range(300)] + [f"{row},{quoted(text)}" for row, text in enumerate(ENGLISH)]
    (tmp_path / "survey" / "answers.csv").write_text("\n".join(["id,text", *rows]))
    recipe, _ = recipe_of(tmp_path / "survey", Wishes(3600.0))
    texts, rejects = read(recipe)
    assert texts == ENGLISH
    assert len(rejects) / (len(rejects) + len(texts)) < recipe.checks.max_set_aside_share


def test_a_parquet_file_of_an_old_writer_whose_text_is_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    table = {"id": [*range(len(ENGLISH))], "Text": pa.array([text.encode() for text in ENGLISH], pa.binary())}
    pq.write_table(pa.table(table).rename_columns(["id", "text"]), tmp_path / "old" / "all.parquet")
    recipe, _ = recipe_of(tmp_path / "old", Wishes(3600.0))
    assert read(recipe) == (ENGLISH, [])


def test_files_that_count_their_rows_from_zero_lose_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for part in range(5):
        rows = [{"id": row, "text": text} for row, text in enumerate(ENGLISH[part::5])]
        (tmp_path / "parts" / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe, _ = recipe_of(tmp_path / "parts", Wishes(3600.0))
    (corpus,) = recipe.corpora
    source = open_source(corpus.name, corpus.source)
    batches = [batch for unit in source.units() for batch in source.read(unit, [])]
    assert sum(batch.num_rows for batch in batches) == len(ENGLISH)
    assert len({one for batch in batches for one in batch.column("id").to_pylist()}) == len(ENGLISH)


def test_a_file_of_many_texts_is_divided_at_the_mark_that_ends_each(tmp_path: Path) -> None:
    (tmp_path / "stories").mkdir()
    for name, ending in {"train": "\n<|endoftext|>\n", "valid": "<|endoftext|>\r\n"}.items():
        content = "".join(f"{text.strip()}{ending}" for text in ENGLISH)
        (tmp_path / "stories" / f"{name}.txt").write_text(content, newline="")
    (tmp_path / "stories" / "about.md").write_text("<|endoftext|> ends a story.\n" + "\n".join(ENGLISH))
    recipe, _ = recipe_of(tmp_path / "stories", Wishes(3600.0))
    texts, rejects = read(recipe)
    stories = [one.strip() for one in ENGLISH]
    assert all(texts.count(one) == 2 * stories.count(one) for one in stories) and rejects == []
    assert [text[:29] for text in texts if "<|" in text] == ["<|endoftext|> ends a story.\n" + ENGLISH[0][0]]


WORDS = [" ".join(text.replace('"', " ").split()) for text in ENGLISH]
TABLES = {
    "two columns of one name": (
        "text,text\n" + "".join(f"{row},{quoted(text)}\n" for row, text in enumerate(WORDS)),
        "2 columns have the name 'text'",
    ),
    "commas without quotes": (
        "id,text\n" + "".join(f"{row},{text}, and, more\n" for row, text in enumerate(WORDS)),
        "the row has not as many fields as the header",
    ),
    "quotes that are not doubled": (
        "id,text\n" + "".join(f'{row},"{text} "so" he said"\n' for row, text in enumerate(WORDS)),
        "',' expected after '\"'",
    ),
    "no names of columns": (
        "".join(f"{row},{quoted(text)}\n" for row, text in enumerate(ENGLISH)),
        "its first row does not name the column of its text",
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_cannot_be_read_is_refused_and_not_read_as_something_else(
    tmp_path: Path, kind: str
) -> None:
    content, why = TABLES[kind]
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "all.csv").write_text(content)
    with pytest.raises(NothingReadableError) as raised:
        recipe_of(tmp_path / "rows", Wishes(3600.0))
    assert why in str(raised.value)


TURNS: dict[str, list[dict[str, Any]]] = {
    "narrator": [{"role": "narrator", "content": "It was night."}, {"role": "assistant", "content": "Yes."}],
    "without text": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "no message is of the assistant": [{"role": "system", "content": "Be kind."}],
    "calls a tool": [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "clock"}}]},
        {"role": "assistant", "content": "Noon."},
    ],
}


@pytest.mark.parametrize("why", TURNS)
def test_conversations_that_cannot_be_learned_are_told_before_the_training_and_not_after_it(
    tmp_path: Path, why: str
) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    (folder / "text.txt").write_text("\n\n".join(ENGLISH))
    (folder / "talks.jsonl").write_text((json.dumps({"messages": TURNS[why]}) + "\n") * 50)
    recipe, found = recipe_of(folder, Wishes(3600.0, chat=True))
    assert recipe.post_training.sft is None
    assert why in found.unread["talks.jsonl"][0]


def test_a_large_file_that_cannot_be_learned_is_not_read_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    (folder / "text.txt").write_text("\n\n".join(ENGLISH))
    table = pa.table({"messages": pa.repeat(pa.scalar(TURNS["narrator"]), 1_000_000)})
    pq.write_table(table, folder / "talks.parquet")
    began = time.monotonic()
    assert "narrator" in judged(folder).unread["talks.parquet"][0]
    assert time.monotonic() - began < SECONDS


def test_one_conversation_is_not_learned_since_it_cannot_be_held_out_too(tmp_path: Path) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    (folder / "text.txt").write_text("\n\n".join(ENGLISH))
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]
    (folder / "talks.jsonl").write_text(json.dumps({"messages": turns}))
    chosen = choose(judged(folder), Wishes(3600.0, chat=True), fixed_speed())
    assert not chosen.conversations
    assert any("a single conversation" in note for note in notes(chosen))


@pytest.mark.parametrize(("most", "why"), [(400, ": add other texts"), (9_999, ", since they are long")])
def test_conversations_in_files_of_text_that_are_learned_as_text_are_told_why(
    most: int, why: str, tmp_path: Path
) -> None:
    for number, text in enumerate(ENGLISH[:20]):
        answer = " ".join(text.split())[:most]
        (tmp_path / f"{number}.txt").write_text(f"User: What is it?\n\nAssistant: {answer}\n")
    if most > 400:
        (tmp_path / "other.txt").write_text(ENGLISH[0])
    chosen = choose(judged(tmp_path), Wishes(3600.0, chat=True), fixed_speed())
    (note,) = [one for one in notes(chosen) if one.startswith("--chat")]
    assert f"learned as text{why}" in note


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
    # What Thunderbird and Maildir keep.
    "INBOX": (b"From - Mon Jan  1 10:00:00 2024\r\nX-Mozilla-Status: 0001\r\n", "name it .mbox"),
    "cur/1700000000.M0P1.host:2,S": (RECEIVED + b"From: a@example.org\r\n\r\nText\r\n", "name it .eml"),
    "letter": (b"From Monday on, we meet at 10:00.\n", "name it .txt"),
    "notes.log": (b"Date: Monday\nFrom: Ann\n\nText\n", "name it .txt"),
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


@pytest.mark.parametrize("encoding", ["utf-16", "cp1251"])
@pytest.mark.parametrize("suffix", [".txt", ".csv"])
def test_the_length_of_a_text_does_not_depend_on_how_it_is_encoded(
    tmp_path: Path, encoding: str, suffix: str
) -> None:
    """Half or twice as many tokens would be planned."""
    texts = ["Съешь же ещё этих мягких французских булок да выпей чаю. " * 9 + str(row) for row in range(40)]
    content = "\n".join(["text", *texts])
    found = {}
    for name in ("utf-8", encoding):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"all{suffix}").write_text(content, encoding=name)
        [corpus] = judged(folder).corpora
        found[name] = corpus.text_bytes
    assert found[encoding] == pytest.approx(found["utf-8"], rel=0.05)


def _of_gutenberg(number: int) -> str:
    marks = [f"*** {one} OF THE PROJECT GUTENBERG EBOOK {number} ***\n" for one in ("START", "END")]
    license = "1.A. By reading any part of this Project Gutenberg work, you agree to\n\n" * 250
    book = "\n\n".join(f"{number} {text}" for text in ENGLISH[:12])
    return f"The Project Gutenberg eBook\n\n{marks[0]}\n{book}\n{marks[1]}\n{license}"


def _of_jekyll(number: int) -> str:
    return f"---\ntitle: T{number}\ntags: [a]\n---\n\n{ENGLISH[number]}"


def _of_whatsapp(number: int) -> str:
    said = enumerate(ENGLISH[number].splitlines())
    return "".join(f"[12.03.24, 18:22:{n % 60:02}] Ann: {line}\n" for n, line in said)


@pytest.mark.parametrize(
    ("name", "text", "rule", "gone"),
    [
        ("{}.txt", _of_gutenberg, "gutenberg", ("Project Gutenberg", "1.A.")),
        ("{}.md", _of_jekyll, "front_matter", ("---\n", "tags: ")),
        ("WhatsApp Chat with Ann {}.txt", _of_whatsapp, "message_times", ("[12.03.24",)),
    ],
    ids=["gutenberg", "front matter", "whatsapp"],
)
def test_what_programs_write_around_the_text_is_cut_in_whatever_pieces_it_is_read(
    tmp_path: Path, name: str, text: Callable[[int], str], rule: str, gone: tuple[str, ...]
) -> None:
    for number in range(8):
        (tmp_path / name.format(number)).write_text(text(number), newline="\r\n")
    recipe, _ = recipe_of(tmp_path, Wishes(seconds=600))
    (corpus,) = recipe.corpora
    assert corpus.edits and corpus.edits.rules == (rule,)
    texts, _ = read(recipe)
    documents = pa.RecordBatch.from_pydict({"id": list(map(str, range(len(texts)))), "text": texts})
    kept = "".join(edit(documents, corpus.edits)[0].column("text").to_pylist())
    assert not any(one in kept for one in gone)
    assert all(word in kept for number in range(8) for word in ENGLISH[number].split())


def test_a_folder_without_such_marks_is_not_edited(tmp_path: Path) -> None:
    for number, text in enumerate(ENGLISH[:12]):
        quoted = "In a log, [12.03.24, 18:22:01] Ann: begins a line, and ---\n" * 2
        (tmp_path / f"{number}.md").write_text(f"---\n{text}\n---\n{quoted}")
    assert not recipe_of(tmp_path, Wishes(seconds=600))[0].corpora[0].edits


def _of_line(number: int) -> str:
    said = "".join(f"18:{n % 60:02}\tAnn\t{line}\n" for n, line in enumerate(ENGLISH[number].splitlines()))
    return f"[LINE] Chat history with Ann\nSaved on: 2024/03/12 18:22\n\n2024/03/12(Tue)\n{said}"


@pytest.mark.parametrize(
    ("line", "chat"),
    [
        ("[1/12/2024 3:04 PM] ann\n{}\n\n", True),
        ("Mar 12, 2024  3:04:05 PM\nMe\n{}\n\n", True),
        ("[홍길동] [오후 3:04] {}\n", True),
        ("18:22 <ann> {}\n", True),
        ("18:22\tPlatform 3\t{}\n", False),  # a time table
        ("2024-03-12 18:22 - 19:00 {}\n", False),
        ("[2024-03-12 18:22:01] main.ERROR: {}\n", False),  # a log
        ("2024-03-12 18:22:01 - main - INFO - {}\n", False),
    ],
)
def test_times_are_cut_where_most_messages_have_one_and_from_no_log_or_time_table(
    line: str, chat: bool, tmp_path: Path
) -> None:
    for number in range(4):
        text = "".join(map(line.format, ENGLISH[number].splitlines()))
        (tmp_path / f"{number}.txt").write_text(text)
    [corpus] = judged(tmp_path).corpora
    assert corpus.edits == (("message_times",) if chat else ())


def test_columns_of_times_are_cut_where_a_chat_of_line_begins(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(_of_line(number))
    assert judged(tmp_path).corpora[0].edits == ("message_times",)


PROGRAMS = "pyi pyx mjs cjs mts vue svelte hh cxx cu m dart zig fs clj erl f90 pas vhd ps1 tf css proto sol"


def test_programs_in_the_usual_languages_are_read_as_programs(tmp_path: Path) -> None:
    for suffix in PROGRAMS.split():
        (tmp_path / f"a.{suffix}").write_text(f"begin {suffix}\n{ENGLISH[0]}")
    recipe, folder = recipe_of(tmp_path, Wishes(seconds=600))
    assert not folder.unread and [corpus.kind.profile for corpus in folder.corpora] == ["code"]
    begun = [text.splitlines()[0] for text in read(recipe)[0]]
    assert all(f"begin {suffix}" in begun for suffix in PROGRAMS.split())
