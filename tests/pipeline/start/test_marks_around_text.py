"""What programs write around the texts of a folder is found and cut."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.stages.edits import edit
from pipeline.start.choose import Wishes
from tests.folders import ENGLISH
from tests.pipeline.start.test_odd_folders import read
from tests.pipeline.start.test_start import judged, recipe_of


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


def _of_weechat(number: int) -> str:
    said = [f"ann\t{line}" for line in ENGLISH[number].splitlines()]
    lines = ["-->\tann (~ann@host) has joined #tea", *said]
    return "".join(f"2024-03-12 18:22:{n % 60:02}\t{line}\n" for n, line in enumerate(lines))


def _of_table(number: int) -> str:
    return _of_weechat(number).partition("\n")[2]


@pytest.mark.parametrize(("text", "chat"), [(_of_line, True), (_of_weechat, True), (_of_table, False)])
def test_columns_of_times_are_cut_where_only_a_chat_has_them(
    text: Callable[[int], str], chat: bool, tmp_path: Path
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(text(number))
    assert judged(tmp_path).corpora[0].edits == (("message_times",) if chat else ())
