"""A folder and a deadline become a recipe, or one sentence that says why not."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from pipeline.cli.start import FailedJobError, _execute
from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.sources import open_source
from pipeline.sources.source import Rejected
from pipeline.start import speed
from pipeline.start.choose import Wishes, choose
from pipeline.start.look import Folder, NothingReadableError, look
from pipeline.start.reasons import notes
from pipeline.start.sizes import SIZES, Size, longest, worth
from pipeline.start.speed import Speed
from pipeline.start.written import recipe_text, write

ENGLISH = [text for text in topics.values() if len(text) > 500]
CHINESE = (
    "春天到了。花园里的花都开了。孩子们在草地上跑来跑去。他们的笑声传得很远。老人坐在树下看书。喝着热茶。" * 5
)
GERMAN = "Die Straße führt über die Brücke, und für die Häuser am Ufer gibt es einen schönen Weg hinüber. "
SECONDS = 30  # to look at a folder, on a machine that has other work


def books(folder: Path) -> None:
    for number in range(3):
        (folder / f"book {number}.txt").write_text("\n\n".join(ENGLISH[number::3]) * 3)


def mail(folder: Path) -> None:
    for number, text in enumerate(ENGLISH[:40]):
        head = f"From: a{number}@example.org\nTo: list@example.org\nSubject: number {number}\n\n"
        (folder / f"{number}.eml").write_text(head + text)


def odd_csv(folder: Path) -> None:
    rows = [f'{n};"{text[:900]}";2020' for n, text in enumerate(t.replace('"', "'") for t in ENGLISH[:60])]
    (folder / "export.csv").write_text("\n".join(["Nr;Beschreibung;Jahr", *rows]))


def code(folder: Path) -> None:
    for path in sorted(Path(speed.__file__).parent.glob("*.py")):
        (folder / path.name).write_text(path.read_text())


def two_languages(folder: Path) -> None:
    rows = [{"body": text} for text in ENGLISH[:30]] + [{"body": f"{n}{CHINESE}"} for n in range(60)]
    (folder / "all.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def chats(folder: Path) -> None:
    said = [
        {"messages": [{"role": "user", "content": f"Why {n}?"}, {"role": "assistant", "content": text[:800]}]}
        for n, text in enumerate(ENGLISH[:20])
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    books(folder)


def nested_markdown(folder: Path) -> None:
    for number, text in enumerate(ENGLISH):
        place = folder / f"part {number % 3}" / "chapter [1]"
        place.mkdir(parents=True, exist_ok=True)
        (place / "same name.md" if number < 3 else place / f"{number}.md").write_text(f"# {number}\n\n{text}")


def html_in_parquet(folder: Path) -> None:
    pages = [f"<html><body><div><p>{text}</p><p>end</p></div></body></html>" for text in ENGLISH[:50]]
    pq.write_table(pa.table({"url": ["https://example.org"] * 50, "html": pages}), folder / "pages.parquet")


def little(folder: Path) -> None:
    (folder / "notes.txt").write_text("\n\n".join(ENGLISH)[:200_000])


def huge(folder: Path) -> None:
    little(folder)
    with (folder / "huge.txt").open("wb") as file:
        file.write("\n\n".join(ENGLISH).encode())
        file.truncate(10 << 30)


def odd_names_and_encodings(folder: Path) -> None:
    (folder / "latin [1].txt").write_bytes((GERMAN * 200).encode("latin-1"))
    (folder / "wide.txt").write_bytes((GERMAN * 200).encode("utf-16"))
    (folder / "a, b: c #d.txt").write_text(GERMAN * 200)
    (folder / "-\udcff.txt").write_text(GERMAN * 150)


def formats_by_folder(folder: Path) -> None:
    for name, make in {"novels": books, "posts": mail, "tables": odd_csv}.items():
        (folder / name).mkdir()
        make(folder / name)


READABLE = (
    *(books, mail, odd_csv, code, two_languages, chats, nested_markdown, html_in_parquet),
    *(little, huge, odd_names_and_encodings, formats_by_folder),
)


def rubbish(folder: Path) -> None:
    (folder / "photo.jpg").write_bytes(bytes(range(256)) * 40)
    (folder / "broken.jsonl").write_bytes(b"\x00\x01{{{{" * 300)
    (folder / "archive.parquet").write_bytes(b"PAR1 not really")


def empty(folder: Path) -> None:
    (folder / "inside").mkdir()


def fixed_speed(tokens_per_second: float = 5_000.0) -> Speed:
    """A machine of this speed with the usual size."""
    usual = SIZES[1].model.flops_per_token(8_192, 256)

    def measure(size: Size, vocab_size: int, seconds: float) -> float:
        return tokens_per_second * usual / size.model.flops_per_token(vocab_size, size.seq_len)

    return Speed(measure=measure)


def folder_of(make: Callable[[Path], None], tmp_path: Path) -> Path:
    folder = tmp_path / "My text"
    folder.mkdir()
    make(folder)
    return folder


def recipe_of(folder: Path, wishes: Wishes) -> tuple[Recipe, Folder]:
    found = look(folder)
    path = folder.with_name("recipe.yaml")
    write(path, recipe_text(choose(found, wishes, fixed_speed()), path.parent))
    return load_recipe(path), found


@pytest.mark.parametrize("make", READABLE)
def test_a_folder_becomes_a_recipe_whose_corpora_read_all_of_its_text(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = folder_of(make, tmp_path)
    began = time.monotonic()
    recipe, found = recipe_of(folder, Wishes(3600.0))
    assert time.monotonic() - began < SECONDS
    texts = [one for one in found.corpora if one.is_text]
    assert [corpus.name for corpus in recipe.corpora] == [one.name for one in texts]
    assert found.unread == {} or make is huge
    if make is huge:
        return
    read = set()
    for corpus in recipe.corpora:
        rejects: list[Rejected] = []
        source = open_source(corpus.name, corpus.source)
        batches = [batch for unit in source.units() for batch in source.read(unit, rejects)]
        assert rejects == []
        assert sum(batch.num_rows for batch in batches) > 0
        read |= {(corpus.name, name) for batch in batches for name in batch.column("source").to_pylist()}
    assert len(read) == sum(one.files for one in texts)


def test_each_kind_of_text_is_recognized(tmp_path: Path) -> None:
    kinds = {}
    for make in (books, mail, code, html_in_parquet, nested_markdown):
        place = tmp_path / make.__name__
        place.mkdir()
        (found,) = look(folder_of(make, place)).corpora
        kinds[make.__name__] = found.kind.name
    assert kinds == {
        "books": "books",
        "mail": "mail",
        "code": "code",
        "html_in_parquet": "web",
        "nested_markdown": "docs",
    }


def test_subfolders_of_different_formats_become_corpora_with_their_names(tmp_path: Path) -> None:
    found = look(folder_of(formats_by_folder, tmp_path)).corpora
    assert sorted(one.name for one in found) == ["novels", "posts", "tables"]
    assert {one.name: one.shape.text_column for one in found}["tables"] == "Beschreibung"
    assert {one.name: one.shape.separator for one in found}["tables"] == ";"


def test_many_subfolders_are_looked_at_in_seconds_and_are_one_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    for number in range(2_000):
        place = folder / f"{number:04}"
        place.mkdir(parents=True)
        (place / "page.txt").write_text(ENGLISH[number % len(ENGLISH)])
    began = time.monotonic()
    (found,) = look(folder).corpora
    assert time.monotonic() - began < SECONDS
    assert (found.name, found.files, found.paths) == ("archive", 2_000, ("archive/**/*.txt",))


def test_texts_in_other_languages_are_judged_by_their_own_rules(tmp_path: Path) -> None:
    folder = folder_of(two_languages, tmp_path)
    (found,) = look(folder).corpora
    assert found.kind.languages["zh"] > 0.1
    recipe, _ = recipe_of(folder, Wishes(3600.0, languages=("en", "zh"), profile="docs"))
    assert recipe.corpora[0].quality is not None
    assert recipe.corpora[0].quality.by_language
    assert recipe.corpora[0].quality.languages == ("en", "zh")


def test_a_corpus_that_would_be_empty_is_left_out_and_said(tmp_path: Path) -> None:
    folder = folder_of(books, tmp_path)
    (folder / "scrap").mkdir()
    (folder / "scrap" / "one.py").write_text("x = 1")
    (folder / "table.csv").write_text("a;b\n" + "\n".join(f"{n};{GERMAN}" for n in range(200)))
    chosen = choose(look(folder), Wishes(3600.0, languages=("en",)), fixed_speed())
    assert [one.found.name for one in chosen.corpora] == ["my_text"]
    assert any("scrap has only 5 bytes" in note for note in notes(chosen))
    assert any("is not in en" in note for note in notes(chosen))
    with pytest.raises(NothingReadableError, match="none of its text is in zh"):
        choose(look(folder), Wishes(3600.0, languages=("zh",)), fixed_speed())


def test_every_encoding_is_found(tmp_path: Path) -> None:
    found = look(folder_of(odd_names_and_encodings, tmp_path)).corpora
    assert {one.shape.encoding for one in found} == {"utf-8", "cp1252", "utf-16"}


def test_conversations_are_learnt_after_the_text_where_chat_is_asked_for(tmp_path: Path) -> None:
    folder = folder_of(chats, tmp_path)
    recipe, _ = recipe_of(folder, Wishes(3600.0))
    assert recipe.post_training.sft is None
    recipe, _ = recipe_of(folder, Wishes(3600.0, chat=True))
    assert recipe.post_training.sft is not None
    assert recipe.post_training.sft.corpora[0].source.format == "chat"  # type: ignore[attr-defined]
    (folder / "chats.jsonl").unlink()
    without = choose(look(folder), Wishes(60.0, chat=True), fixed_speed())
    assert any("no conversations" in note for note in notes(without))


@pytest.mark.parametrize("make", [rubbish, empty, lambda _: None])
def test_nothing_readable_is_one_sentence(
    make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(make, tmp_path)
    assert main(["start", str(folder), "--hours", "1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("error:") == 1
    assert "no model can be made" in said.err
    assert not folder.with_name("My text.yaml").exists()


def test_what_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    folder = folder_of(rubbish, tmp_path)
    little(folder)
    found = look(folder)
    assert set(found.unread) == {"photo.jpg", "broken.jsonl", "archive.parquet"}
    assert ".jpg" in found.unread["photo.jpg"][0]
    assert all(why for why, _ in found.unread.values())
    recipe, _ = recipe_of(folder, Wishes(3600.0))
    assert [corpus.name for corpus in recipe.corpora] == ["my_text"]


def test_more_time_makes_a_larger_model_and_little_text_a_smaller_one() -> None:
    def chosen(text_bytes: int, hours: float) -> tuple[int, float]:
        found = longest(text_bytes, hours * 3600, fixed_speed().of)
        return SIZES.index(found.size), found.epochs

    speed_known = fixed_speed()
    speed_known.look()
    sizes = [SIZES.index(longest(10**10, hours * 3600, speed_known.of).size) for hours in (0.05, 200, 2_000)]
    assert sizes == sorted(set(sizes))
    tiny = longest(20_000, 1e9, speed_known.of)
    assert tiny.size is SIZES[0]
    assert tiny.epochs <= 16
    assert chosen(10**9, 1.0)[1] < 1


def test_repeated_text_is_worth_less_each_time_and_nothing_after_sixteen() -> None:
    assert worth(50, 100) == 50
    assert 3.5 < worth(400, 100) / 100 < 4
    assert worth(1_600, 100) == worth(10_000, 100)


def test_the_training_fits_into_the_time(tmp_path: Path) -> None:
    folder = folder_of(books, tmp_path)
    for hours in (0.1, 0.3):
        chosen = choose(look(folder), Wishes(hours * 3600), fixed_speed())
        machine = fixed_speed()
        machine.look()
        seconds = chosen.length.tokens / machine.of(chosen.length.size, chosen.length.vocab_size)
        assert seconds < hours * 3600


def test_a_recipe_that_somebody_changed_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "measured", lambda *_: 5_000.0)
    folder, path = folder_of(little, tmp_path), tmp_path / "My text.yaml"
    line = ["start", str(folder), "--hours", "0.5", "--plan"]
    assert main(line) == 0
    assert "because" in capsys.readouterr().out
    load_recipe(path)
    assert main(line) == 0
    changed = path.read_text().replace("seed: 1", "seed: 2")
    path.write_text(changed)
    assert main(line) == 2
    assert "was changed since" in capsys.readouterr().err
    assert path.read_text() == changed
    assert main([*line, "--force"]) == 0
    assert main([*line, "-o", str(tmp_path / "nowhere" / "recipe.yaml")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    assert "seed: 1" in path.read_text()


def test_a_job_that_fails_is_said_in_one_sentence() -> None:
    with pytest.raises(FailedJobError, match="ended with status 1"):
        _execute(["python3", "-c", "raise SystemExit(1)"], {})


def test_a_folder_with_conversations_alone_is_refused(tmp_path: Path) -> None:
    folder = folder_of(chats, tmp_path)
    for path in folder.glob("*.txt"):
        path.unlink()
    with pytest.raises(NothingReadableError, match="add a folder of texts"):
        choose(look(folder), Wishes(3600.0), fixed_speed())
