"""A folder and a deadline become a recipe, or one sentence that says why not."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.cli import main
from pipeline.cli.summary import CHECKOUT
from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.sources import open_source
from pipeline.sources.source import Rejected
from pipeline.start import jobs, speed
from pipeline.start.choose import Wishes, choose
from pipeline.start.folder.look import Folder, NothingReadableError, look
from pipeline.start.jobs import FailedJobError, execute
from pipeline.start.reasons import notes
from pipeline.start.recipe_file import recipe_text, write
from pipeline.start.sizes import SIZES, USUAL, Size
from pipeline.start.speed import Measured, Speed
from tests.folders import (
    ENGLISH,
    GERMAN,
    LARGER,
    READABLE,
    books,
    chats_alone,
    code,
    empty,
    formats_by_folder,
    half_broken,
    html_in_parquet,
    huge,
    little,
    mail,
    nested_markdown,
    odd_names_and_encodings,
    rubbish,
    two_languages,
)

SECONDS = 30  # to look at a folder, on a machine that has other work


def fixed_speed(tokens_per_second: float = 5_000.0, gpus: int = 0) -> Speed:
    """A machine of this speed with the usual size, on one device."""
    usual = SIZES[USUAL].model.flops_per_token(8_192, 256)

    def measure(size: Size, vocab_size: int, seconds: float) -> Measured:
        flops_per_token = size.model.flops_per_token(vocab_size, size.seq_len)
        return Measured(tokens_per_second * usual / flops_per_token, gpus)

    return Speed(measure=measure)


def judged(folder: Path) -> Folder:
    *_, found = look(folder)
    return found


def folder_of(make: Callable[[Path], None], tmp_path: Path) -> Path:
    folder = tmp_path / "My text"
    folder.mkdir()
    make(folder)
    return folder


def recipe_of(folder: Path, wishes: Wishes) -> tuple[Recipe, Folder]:
    found = judged(folder)
    path = folder.with_name("recipe.yaml")
    write(path, choose(found, wishes, fixed_speed()))
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


@pytest.mark.parametrize("make", LARGER)
def test_the_plan_of_a_larger_folder_is_made_in_seconds(make: Callable[[Path], None], tmp_path: Path) -> None:
    folder = folder_of(make, tmp_path)
    began = time.monotonic()
    recipe, found = recipe_of(folder, Wishes(180.0))
    assert time.monotonic() - began < SECONDS
    assert recipe.corpora
    assert (found.unread != {}) == (make is half_broken)


def test_each_kind_of_text_is_recognized(tmp_path: Path) -> None:
    kinds = {}
    for make in (books, mail, code, html_in_parquet, nested_markdown):
        place = tmp_path / make.__name__
        place.mkdir()
        (found,) = judged(folder_of(make, place)).corpora
        kinds[make.__name__] = found.kind.name
    assert kinds == {
        "books": "books",
        "mail": "mail",
        "code": "code",
        "html_in_parquet": "web",
        "nested_markdown": "docs",
    }


def test_subfolders_of_different_formats_become_corpora_with_their_names(tmp_path: Path) -> None:
    found = judged(folder_of(formats_by_folder, tmp_path)).corpora
    assert sorted(one.name for one in found) == ["novels", "posts", "tables"]
    assert {one.name: one.shape.text_column for one in found}["tables"] == "Beschreibung"
    assert {one.name: one.shape.separator for one in found}["tables"] == ";"


@pytest.mark.parametrize("place", [".", "work"])
@pytest.mark.parametrize(("notes", "apart"), [(20, True), (1, False)])
def test_programs_and_texts_in_one_folder_are_corpora_of_their_own(
    tmp_path: Path, place: str, notes: int, apart: bool
) -> None:
    folder = tmp_path / "mine" / place
    folder.mkdir(parents=True)
    for number in range(20):
        program = "".join(f"def f{line}(x):\n    return x + {number}\n\n\n" for line in range(100))
        (folder / f"{number}.py").write_text(program)
    for number in range(notes):
        (folder / f"{number}.md").write_text(ENGLISH[number % len(ENGLISH)][: 3_000 if apart else 500])
    found = judged(tmp_path / "mine").corpora
    kinds = {tuple(sorted(path.rpartition(".")[2] for path in one.paths)): one.kind.name for one in found}
    assert kinds == ({("md",): "docs", ("py",): "code"} if apart else {("md", "py"): "code"})
    name = "mine" if place == "." else place
    assert {one.name for one in found} == ({name, f"{name}_code"} if apart else {name})


def test_many_subfolders_are_looked_at_in_seconds_and_are_one_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    for number in range(2_000):
        place = folder / f"{number:04}"
        place.mkdir(parents=True)
        (place / "page.txt").write_text(ENGLISH[number % len(ENGLISH)])
    began = time.monotonic()
    (found,) = judged(folder).corpora
    assert time.monotonic() - began < SECONDS
    assert (found.name, found.files, found.paths) == ("archive", 2_000, ("archive/**/*.txt",))


def test_texts_in_other_languages_are_judged_by_their_own_rules(tmp_path: Path) -> None:
    folder = folder_of(two_languages, tmp_path)
    (found,) = judged(folder).corpora
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
    chosen = choose(judged(folder), Wishes(3600.0, languages=("en",)), fixed_speed())
    assert [one.corpus.name for one in chosen.corpora] == ["my_text"]
    assert any("scrap has only 5 bytes" in note for note in notes(chosen))
    assert any("is not in en" in note for note in notes(chosen))
    with pytest.raises(NothingReadableError, match="none of its text is in zh"):
        choose(judged(folder), Wishes(3600.0, languages=("zh",)), fixed_speed())


def test_a_little_text_in_parquet_is_not_read_until_it_is_learned_by_heart(tmp_path: Path) -> None:
    """Its size is that of the text, not of a guess at what packed bytes become; a fifth of it is held out."""
    folder = folder_of(html_in_parquet, tmp_path)
    text_bytes = sum(map(len, pq.read_table(folder / "pages.parquet").column("html").to_pylist()))
    chosen = choose(judged(folder), Wishes(3600.0), fixed_speed())
    assert chosen.budget.text_bytes == pytest.approx(text_bytes, rel=0.1)
    assert chosen.length.unique == pytest.approx(0.8 * chosen.budget.kept / 3.0, rel=0.01)
    assert chosen.length.epochs <= 16  # with dropout


def test_a_folder_of_copies_is_no_reason_to_stop_and_a_guess_at_the_speed_is_called_one(
    tmp_path: Path,
) -> None:
    chosen = choose(judged(folder_of(little, tmp_path)), Wishes(180.0), Speed(measure=lambda *_: None))
    text = recipe_text(chosen, tmp_path)
    assert yaml.safe_load(text)["dedup_guard"]["max_lost_share"] == 1
    assert "a guess: nothing could be measured" in text


def test_every_encoding_is_found(tmp_path: Path) -> None:
    found = judged(folder_of(odd_names_and_encodings, tmp_path)).corpora
    assert {one.shape.encoding for one in found} == {"utf-8", "cp1252", "utf-16"}


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
    found = judged(folder)
    assert set(found.unread) == {"photo.jpg", "broken.jsonl", "archive.parquet"}
    assert found.unread["photo.jpg"][0] == "it holds no text"
    assert all(why for why, _ in found.unread.values())
    recipe, _ = recipe_of(folder, Wishes(3600.0))
    assert [corpus.name for corpus in recipe.corpora] == ["my_text"]


def test_a_recipe_that_somebody_changed_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "measured", lambda *_: Measured(5_000.0))
    folder, path = folder_of(little, tmp_path), tmp_path / "My text.yaml"
    line = ["start", str(folder), "--hours", "0.5", "--plan"]
    assert main(line) == 0
    assert "because" in (said := capsys.readouterr().out)
    assert f"Run it: GROUNDWORK_RECIPE='{path}' dagster" in said
    load_recipe(path)
    assert main(line) == 0
    changed = path.read_text().replace("seed: 1", "seed: 2")
    path.write_text(changed)
    assert main(line) == 2
    assert "was changed since" in (said := capsys.readouterr().err)
    assert f"`GROUNDWORK_RECIPE='{path}' dagster" in said
    assert path.read_text() == changed
    assert main([*line, "--force"]) == 0
    assert main([*line, "-o", str(tmp_path / "nowhere" / "recipe.yaml")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    assert "seed: 1" in path.read_text()


def test_a_variable_that_is_not_set_is_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`groundwork "$TEXTS"` must not learn whatever the current folder holds."""
    monkeypatch.chdir(folder_of(little, tmp_path))
    with pytest.raises(SystemExit, match="2"):
        main(["start", "", "--hours", "0.5", "--plan"])
    assert "FOLDER: is empty: name a folder" in capsys.readouterr().err


def test_a_folder_in_the_place_of_the_recipe_is_told_with_a_name_for_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(little, tmp_path)
    assert main(["start", str(folder), "--hours", "0.5", "--plan", "-o", str(tmp_path)]) == 2
    place = f"name a file, such as {tmp_path}/{folder.name}.yaml"
    assert f"--out {tmp_path}: is a folder: {place}" in capsys.readouterr().err


def test_programs_that_are_started_keep_their_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each compiles all of its modules again, in half of a short deadline."""
    inherited = []
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(speed, "measured", lambda *_: inherited.append(dict(os.environ)))
    assert main(["start", str(folder_of(little, tmp_path)), "--hours", "0.5", "--plan"]) == 0
    assert inherited
    assert all("PYTHONDONTWRITEBYTECODE" not in one for one in inherited)


def test_an_empty_variable_is_one_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty DAGSTER_HOME, Dagster would forget the runs."""
    names = (
        "DAGSTER_HOME",
        "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME",
        "DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY",
    )
    for name in (*names, RECIPE_VARIABLE, "GROUNDWORK_STORE"):
        monkeypatch.setenv(name, "")
    started: list[list[str]] = []

    def execute(*_: object, **__: object) -> bool:
        started.append([os.environ[name] for name in names])
        raise FailedJobError("enough")

    monkeypatch.setattr(speed, "measured", lambda *_: None)
    monkeypatch.setattr(jobs, "execute", execute)
    assert main(["start", str(folder_of(little, tmp_path)), "--hours", "0.5"]) == 2
    assert started == [[f"{CHECKOUT}/dagster_home", "pipeline.definitions", str(CHECKOUT)]]


def test_a_job_that_fails_is_said_in_one_sentence() -> None:
    with pytest.raises(FailedJobError, match="ended with status 1"):
        execute(["python3", "-c", "raise SystemExit(1)"])


def test_a_folder_with_conversations_alone_is_refused(tmp_path: Path) -> None:
    folder = folder_of(chats_alone, tmp_path)
    with pytest.raises(NothingReadableError, match="add a folder of texts"):
        choose(judged(folder), Wishes(3600.0), fixed_speed())


def test_what_was_found_is_printed_before_a_kernel_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a fresh machine compiling takes longer than all of the look."""

    def compiles(_: object) -> None:
        assert "my_text" in capsys.readouterr().out
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.start.folder.kind.measure", compiles)
    folder = folder_of(formats_by_folder, tmp_path)
    books(folder)
    assert main(["start", str(folder), "--hours", "0.1", "--plan"]) == 130


def test_two_starts_do_not_write_their_plans_over_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(little, tmp_path)
    command = ["start", str(folder), "--hours", "0.1", "--plan"]
    ended = []

    def meanwhile(*_: object) -> Measured:
        monkeypatch.setattr(speed, "measured", lambda *_: Measured(5_000.0))
        if not ended:
            ended.extend([main(command), main([*command, "-o", str(tmp_path / "other.yaml")])])
        return Measured(5_000.0)

    monkeypatch.setattr(speed, "measured", meanwhile)
    assert main(command) == 0
    assert ended == [2, 0]
    assert f"error: {folder}.yaml: another `start` is at work with this recipe" in capsys.readouterr().err
    assert main(command) == 0


def test_a_look_without_time_samples_a_few_files_from_all_over(tmp_path: Path) -> None:
    """A busy machine may leave no time, and the first files may be the only ones without prose."""
    for number in range(40):
        text = "| 1 | 2 | 3 |\n" * 50 if number < 4 else f"{ENGLISH[number % len(ENGLISH)]}\n"
        (tmp_path / f"{number:02}.txt").write_text(text)
    *_, found = look(tmp_path, most_seconds=0)
    assert found.sampled >= 8
    assert all(corpus.kind.rejected[corpus.kind.profile] < 0.5 for corpus in found.corpora)


def test_text_of_which_a_part_is_no_prose_is_split_after_the_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "measured", lambda *_: Measured(5_000.0))
    folder = tmp_path / "mixed"
    for name, text in {"prose": "\n\n".join(ENGLISH)[:60_000], "numbers": "12 13 14 15\n" * 4_000}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "one.txt").write_text(text)
    assert main(["start", str(folder), "--hours", "0.5", "--plan"]) == 0
    first, second = capsys.readouterr().out.split("By the quality of their text")
    assert "mixed" in first.splitlines()[1]
    assert "prose" in second
    assert "numbers" in second


def test_a_kind_that_would_reject_everything_is_refused_before_the_run(tmp_path: Path) -> None:
    folder = folder_of(
        lambda path: (path / "all.txt").write_text("x = [1, 2]; y = {3: 4}\n" * 2_000), tmp_path
    )
    with pytest.raises(NothingReadableError, match=r"web would reject 100% of the sampled text.*--for"):
        choose(judged(folder), Wishes(600.0, profile="web"), fixed_speed())
