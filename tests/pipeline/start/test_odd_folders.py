"""Folders as people have them: all of their text is read, or a sentence says why not."""

import json
import mailbox
import time
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.cli import start
from pipeline.recipe.recipe import Recipe
from pipeline.sources import open_source
from pipeline.sources.source import Rejected
from pipeline.sources.source_file import LocalFile
from pipeline.sources.web import pages
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
    pages._extractor.cache_clear()
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


PROGRAMS = "pyi pyx mjs cjs mts vue svelte hh cxx cu m dart zig fs clj erl f90 pas vhd ps1 tf css proto sol"


def test_programs_in_the_usual_languages_are_read_as_programs(tmp_path: Path) -> None:
    for suffix in PROGRAMS.split():
        (tmp_path / f"a.{suffix}").write_text(f"begin {suffix}\n{ENGLISH[0]}")
    recipe, folder = recipe_of(tmp_path, Wishes(seconds=600))
    assert not folder.unread and [corpus.kind.profile for corpus in folder.corpora] == ["code"]
    begun = [text.splitlines()[0] for text in read(recipe)[0]]
    assert all(f"begin {suffix}" in begun for suffix in PROGRAMS.split())
