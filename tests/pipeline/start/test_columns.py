"""Which column of a table is learned: never a title, an id or an address whose text lies elsewhere."""

import csv
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.source_file import LocalFile
from pipeline.start.folder.look import look
from pipeline.start.folder.sample import FileSample, sampled
from tests.folders import ENGLISH
from tests.pipeline.sources.formats.test_first_bytes import EXPORTS

Table = dict[str, list[object]]
ROWS = 20
PROSE = [text[:600] for text in ENGLISH[:ROWS]]
# What stands beside a text, longer than the text or not.
BESIDE: dict[str, Callable[[int], object]] = {
    "id": lambda row: f"urn:uuid:{row:032x}",
    "address": lambda row: f"https://example.org/{'a-long-path/' * 80}{row}",
    "hash": lambda row: f"{row:064x}" * 20,
    "licence": lambda row: "This text may be used by everybody, for any purpose. " * 30,
    "label": lambda row: "news",
    "content": lambda row: "text/plain",
    "authors": lambda row: [{"name": "A. Writer", "of": "some place"}],
    "length": lambda row: row,
}
NESTED: dict[str, Callable[[str], object]] = {
    "paragraphs": lambda text: text.split(". "),
    "document": lambda text: {"text": text, "language": "en"},
    "said": lambda text: [{"by": "somebody", "what": [text]}],
}


def written(folder: Path, table: Table, suffix: str) -> FileSample:
    path = folder / f"table{suffix}"
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    if suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    elif suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[*table], *(row.values() for row in rows)])
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return sampled(path.name, LocalFile(path))


def beside(names: set[str]) -> Table:
    return {name: [BESIDE[name](row) for row in range(ROWS)] for name in sorted(names)}


@settings(max_examples=40)
@given(
    names=st.sets(st.sampled_from([*BESIDE])),
    column=st.sampled_from(["a description", "z", "Beitrag"]),
    suffix=st.sampled_from([".jsonl", ".csv", ".parquet"]),
)
def test_the_column_of_prose_is_learned_whatever_stands_beside_it(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], column: str, suffix: str
) -> None:
    table = beside(names - ({"authors"} if suffix == ".csv" else set())) | {column: [*PROSE]}
    sample = written(tmp_path_factory.mktemp("table"), table, suffix)
    assert sample.shape and sample.shape.text_column == column


@given(
    names=st.sets(st.sampled_from(["id", "label", "length"]), min_size=1),
    nested=st.sampled_from([*NESTED]),
    suffix=st.sampled_from([".jsonl", ".parquet"]),
)
def test_a_text_within_a_nested_column_is_named_and_no_id_is_learned_in_its_place(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], nested: str, suffix: str
) -> None:
    table = beside(names) | {nested: [NESTED[nested](text) for text in PROSE]}
    sample = written(tmp_path_factory.mktemp("table"), table, suffix)
    assert sample.shape is None
    assert repr(nested) in sample.problem


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"articles": [{"title": "a", "text": text} for text in PROSE]}, ".articles[]"),
        ({"name": "Anna", "messages": [{"from": "Anna", "text": text} for text in PROSE]}, ".messages[]"),
        ({"chats": {"list": [{"messages": [{"text": one} for one in PROSE]}]}}, ".chats.list[].messages[]"),
        ({"all rows": [{"said": text} for text in PROSE]}, '."all rows"[]'),
    ],
)
def test_where_the_rows_of_a_file_of_one_object_are_is_said(
    tmp_path: Path, value: object, place: str
) -> None:
    for indent in (None, 1):
        path = tmp_path / "export.json"
        path.write_text(json.dumps(value, indent=indent))
        sample = sampled(path.name, LocalFile(path))
        assert sample.shape is None
        assert f"jq -c '{place}'" in sample.problem


def test_files_whose_columns_differ_are_each_looked_at_however_little_time_there_is(tmp_path: Path) -> None:
    for number, text in enumerate(PROSE):
        row = json.dumps({f"column {number}": text, "number": number})
        (tmp_path / f"{number}.jsonl").write_text(f"{row}\n" * 3)
    found = next(look(tmp_path, most_seconds=0))
    assert {corpus.shape.text_column for corpus in found.corpora} == {
        f"column {n}" for n in range(len(PROSE))
    }


def test_a_list_of_texts_says_how_to_write_them_as_rows(tmp_path: Path) -> None:
    (tmp_path / "texts.json").write_text(json.dumps(PROSE))
    sample = sampled("texts.json", LocalFile(tmp_path / "texts.json"))
    assert sample.problem.endswith("write it as an object (jq -c '{text: .}')")


NO_TEXT: dict[str, Callable[[int], object]] = {
    "time": lambda row: f"2024-01-{row + 1:02d} 10:00:00",
    "when": lambda row: f"2024-01-{row + 1:02d}T10:00:00Z",
    "x": lambda row: row / 7,
    "station": lambda row: f"s{row:04d}",
    "hash": lambda row: f"0x{row * 0x9E3779B97F4A7C15 % 2**64:016x}",
}


@settings(max_examples=20)
@given(st.sets(st.sampled_from([*NO_TEXT]), min_size=2), st.sampled_from([".jsonl", ".csv", ".parquet"]))
def test_a_table_of_measurements_is_no_text(names: set[str], suffix: str) -> None:
    with TemporaryDirectory() as folder:
        table = {name: [NO_TEXT[name](row) for row in range(ROWS)] for name in sorted(names)}
        found = written(Path(folder), table, suffix)
    assert found.shape is None and found.problem.startswith("no column holds a text in its first 20 rows")


@pytest.mark.parametrize("names", [["Emma", "Olivia", "Ava"], ["iPhone 12", "Apollo 11", "Kapitel 3"]])
def test_a_table_of_names_is_text(tmp_path: Path, names: list[str]) -> None:
    table: Table = {"year": [*range(1880, 1883)], "name": [*names]}
    shape = written(tmp_path, table, ".csv").shape
    assert shape and shape.text_column == "name"


TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hey"}]


@pytest.mark.parametrize(
    ("row", "format"),
    [
        ({"text": "User: Hi\nAssistant: Hey"}, "chat"),
        ({"conversation": "USER: Hi\nASSISTANT: Hey", "id": "a"}, "chat"),
        ({"dialog": TALK, "tags": ["a", "b"]}, "chat"),
        ({"Question": "What is tea?", "Answer": "A drink."}, "chat"),
        ({"input": "What is tea?", "output": "A drink.", "id": 1}, "chat"),
        ({"text": ENGLISH[0], "items": TALK}, "text"),
        ({"text": ENGLISH[0], "data": ["red", "green"]}, "text"),
        ({"text": ENGLISH[0], "input": "a.txt", "output": "b.txt"}, "text"),
        ({"text": ENGLISH[0], "user": "ann", "assistant": "bob"}, "text"),
        ({"conversation": f"We talked.\n{ENGLISH[0]}"}, "text"),
        ({"text": ENGLISH[0], "turns": 3, "chat": {"id": 1}}, "text"),
        ({"text": f"A title\nUser: ann\n{ENGLISH[0]}"}, "text"),
    ],
)
def test_conversations_are_known_by_what_their_columns_hold(
    tmp_path: Path, row: dict[str, object], format: str
) -> None:
    """Names such as `data` and `input` may be of columns beside a text."""
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(row)}\n" * 5)
    shape = sampled(path.name, LocalFile(path)).shape
    assert shape and shape.format == format


def test_lists_of_messages_within_a_list_say_how_to_write_them(tmp_path: Path) -> None:
    """Each message would be a row of its own."""
    path = tmp_path / "talks.json"
    path.write_text(json.dumps([TALK] * 5))
    assert "(jq -c '.[] | {messages: .}')" in sampled(path.name, LocalFile(path)).problem


def test_a_chat_of_slack_whose_messages_would_be_documents_says_how_to_write_it(tmp_path: Path) -> None:
    path = tmp_path / "2024-01-01.json"
    said = [{"type": "message", "user": "U1", "text": f"Tea {n}?", "ts": f"{n}.1"} for n in range(9)]
    path.write_text(json.dumps(said, indent=4))
    found = sampled(path.name, LocalFile(path))
    assert found.shape is None and "a chat that Slack exported" in found.problem


TEA = [f"Tea at {n} o'clock?" for n in range(9)]
IN_ROWS: dict[str, tuple[str, dict[str, object]]] = {  # the suffix, and what is beside a text
    "Discord": (".csv", {"AuthorID": 1, "Author": "Ann", "Date": "2024", "Content": "{}"}),
    "WeChat": (".csv", {"StrContent": "{}", "IsSender": 0, "NickName": "Ann", "Type": 1}),
    "KakaoTalk": (".csv", {"Date": "2024-01-01 10:00:00", "User": "Ann", "Message": "{}"}),
    "iMazing": (
        ".csv",
        {"Chat Session": "Ann", "Message Date": "2024-01-01", "Sender Name": "Ann", "Text": "{}"},
    ),
    "OpenAssistant": (
        ".jsonl",
        {"message_id": "{}", "parent_id": None, "text": "{}", "role": "prompter", "message_tree_id": "t"},
    ),
    "Gemini": (
        ".json",
        {"header": "Gemini Apps", "title": "Prompted {}", "safeHtmlItem": [{"html": "<p>Yes</p>"}]},
    ),
}


@pytest.mark.parametrize("program", IN_ROWS)
def test_messages_that_would_each_be_a_document_say_how_they_belong_together(
    tmp_path: Path, program: str
) -> None:
    suffix, form = IN_ROWS[program]
    rows = [
        {name: one.format(text) if isinstance(one, str) else one for name, one in form.items()}
        for text in TEA
    ]
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        with path.open("w", newline="") as file:
            (writer := csv.DictWriter(file, [*form])).writeheader()
            writer.writerows(rows)
    else:
        path.write_text(json.dumps(rows, indent=1) if suffix == ".json" else "\n".join(map(json.dumps, rows)))
    found = sampled(path.name, LocalFile(path))
    assert found.shape is None and program in found.problem
    begin = "(python3" if suffix == ".csv" else "(jq"
    if begin in found.problem and shutil.which(begin[1:]):
        command = found.problem[found.problem.rindex(begin) + 1 : -1]
        said = subprocess.run(["bash", "-c", command], input=path.read_bytes(), stdout=-1, check=True)
        first = said.stdout.decode().splitlines()[0]
        assert first == f"Ann: {TEA[0]}" or json.loads(first) == {"prompt": TEA[0], "response": "Yes"}


@pytest.mark.parametrize(("program", "mark"), [("Telegram", "page_body chat_page"), ("Discord", "chatlog")])
def test_a_page_of_a_chat_says_what_to_export_instead(tmp_path: Path, program: str, mark: str) -> None:
    said = "".join(f"<p>{text}</p>" for text in TEA)
    for name, of in (("chat.html", mark), ("page.html", "chatty")):
        path = tmp_path / name
        path.write_text(f'<html><body><div class="{of}">{said}</div></body></html>')
        found = sampled(name, LocalFile(path))
        assert (f"a page of a chat that {program} exported" in found.problem) == (of == mark)


@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_of_a_chat_in_one_line_is_told_the_same(tmp_path: Path, export: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(EXPORTS[export]))
    assert "jq -r '" in sampled(path.name, LocalFile(path)).problem


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
@pytest.mark.parametrize("repeating", [True, False])
def test_ids_that_repeat_far_behind_the_sample_are_noticed(
    tmp_path: Path, suffix: str, repeating: bool
) -> None:
    """They begin again in each part of a file that was joined from two: half of its rows would be lost."""
    rows = [
        {"id": str(n % (1500 if repeating else 3000)), "text": f"{n} {ENGLISH[0][:200]}"} for n in range(3000)
    ]
    path = tmp_path / f"all{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = [json.dumps(row) for row in rows]
        path.write_text("\n".join(lines) if suffix == ".jsonl" else f"[{', '.join(lines)}]")
    (corpus,) = next(look(tmp_path)).corpora
    assert corpus.repeats_ids == repeating
