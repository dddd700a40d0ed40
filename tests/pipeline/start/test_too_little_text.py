"""Each way in which the data stages leave too little for a model is told with what was found and lost."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.recipe.loading import RECIPE_VARIABLE, load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.start import jobs
from pipeline.start.choose import Wishes, choose
from pipeline.start.folder.look import NothingReadableError
from pipeline.start.horizon import Deadline
from pipeline.start.jobs import FailedJobError, Jobs
from pipeline.start.recipe_file import write
from pipeline.start.stored import too_little
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.stages import of_data
from pipeline.store import keys
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from tests.folders import ENGLISH, little, odd_names_and_encodings
from tests.pipeline.start.test_start import fixed_speed, folder_of, judged


def one_sentence(folder: Path) -> None:
    (folder / "all.txt").write_text("The cat sat on the mat, and the dog looked at it.\n" * 3_000)


def broken_rows(folder: Path) -> None:
    rows = [json.dumps({"text": text}) for text in ENGLISH] + ["{broken"] * 4_000
    (folder / "all.jsonl").write_text("\n".join(rows))


def numbers_after_the_sample(folder: Path) -> None:
    texts = [*ENGLISH, *(" ".join(map(str, range(n, n + 300))) for n in range(2_000))]
    (folder / "all.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def one_document(folder: Path) -> None:
    (folder / "all.txt").write_text(ENGLISH[0][:900])


def make_data(recipe: Recipe) -> None:
    store, engine = store_of(recipe), LocalEngine(workers=1)
    for stage in of_data(recipe).values():
        stage.make(store, engine)


def prepared(folder: Path, wishes: Wishes) -> Jobs:
    """The jobs of a folder whose data stages have gone as far as they come."""
    path = folder.with_name("recipe.yaml")
    chosen = choose(judged(folder), wishes, fixed_speed())
    write(path, chosen)
    with suppress(PipelineError, OSError):
        make_data(load_recipe(path))
    return Jobs(path, chosen, Deadline(wishes.seconds), folder, fixed_speed())


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("make", "lost", "remedy"),
    [
        (
            one_sentence,
            r"\d+ are copies of others \(exact \d+.*\), which leaves 1 ",
            "does not repeat itself",
        ),
        (
            odd_names_and_encodings,
            r"of 41 documents in 4 files .* 40 are copies of others",
            "does not repeat",
        ),
        (broken_rows, r"4,000 cannot be read \(invalid_json 4,000\)", "correct or remove"),
        (numbers_after_the_sample, r"2,0\d\d are rejected by quality \(.+ \d+\)", "--for"),
        (one_document, r"of 1 document in 1 file \(900 bytes\), none is rejected", "add text"),
    ],
)
def test_a_job_that_fails_for_want_of_text_says_what_rejected_it(
    make: Callable[[Path], None], lost: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> bool:
        raise FailedJobError("ended with status 1")

    folder = folder_of(make, tmp_path)
    job = prepared(folder, Wishes(180.0))
    monkeypatch.setattr(jobs, "execute", fails)
    with pytest.raises(NothingReadableError) as raised:
        job.run()
    said = str(raised.value)
    assert said.startswith(f"{folder}: no model can be made: of ")
    assert re.search(lost, said) and remedy in said.rpartition(": ")[2]
    assert "\n" not in said


def test_conversations_that_are_copies_are_too_little_to_learn_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alike(folder: Path) -> None:
        little(folder)
        said = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": ENGLISH[0][:400]}]
        (folder / "chats.jsonl").write_text(f"{json.dumps({'messages': said})}\n" * 30)

    folder = folder_of(alike, tmp_path)
    job = prepared(folder, Wishes(180.0, chat=True))
    monkeypatch.setenv(RECIPE_VARIABLE, str(job.path))

    def execute(command: list[str], *_: object, **__: object) -> bool:
        recipe = load_recipe(job.path)
        with suppress(PipelineError):
            make_data(recipe.tuned("sft") if command[-1] == "sft" else recipe)
        if command[-1] == "sft":
            raise FailedJobError("ended with status 1")
        return False

    monkeypatch.setattr(jobs, "execute", execute)
    with pytest.raises(NothingReadableError) as raised:
        job.run()
    said = str(raised.value)
    assert said.startswith(
        f"{folder}: the model is finished, but cannot be taught to answer: of 30 documents in "
    )
    assert "29 are copies of others (exact 29), which leaves" in said
    assert said.endswith("add text that does not repeat itself")


@pytest.mark.parametrize("learnable", [0, 40])
def test_conversations_that_cannot_be_learned_are_told_before_anything_is_trained(
    learnable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered(folder: Path) -> None:
        little(folder)
        said = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
        talks = [json.dumps({"messages": said})] * 2_000
        talks += [json.dumps({"messages": said[:1]})] * 9_000
        (folder / "chats.jsonl").write_text("\n".join(talks) + "\n")

    folder = folder_of(unanswered, tmp_path)
    job = prepared(folder, Wishes(180.0, chat=True))
    if not learnable:  # as if somebody had changed the file since
        (folder / "chats.jsonl").write_text("{}\n" * 30)
    monkeypatch.setattr(jobs, "execute", lambda *_, **__: pytest.fail("a job was run"))
    with pytest.raises(NothingReadableError) as raised:
        job.run()
    said = str(raised.value)
    assert ("9,000 of 11,000 rows (81.82%) were set aside" if learnable else "is empty") in said
    assert "chats.jsonl, row" in said and said.endswith("or leave out --chat")


def test_a_job_that_fails_before_it_has_read_the_text_is_not_blamed_on_the_text(tmp_path: Path) -> None:
    job = prepared(folder_of(little, tmp_path), Wishes(180.0))
    shutil.rmtree(tmp_path / "store")
    assert too_little([one.corpus for one in job.chosen.corpora], load_recipe(job.path)) is None


def test_a_job_that_fails_with_enough_text_fails_for_its_own_reason(tmp_path: Path) -> None:
    job = prepared(folder_of(little, tmp_path), Wishes(180.0))
    assert too_little([one.corpus for one in job.chosen.corpora], load_recipe(job.path)) is None


def test_the_text_has_about_as_many_tokens_as_its_length_was_chosen_for(tmp_path: Path) -> None:
    """Tokens of few entries are short: with too few expected, a little text is read too seldom."""
    job = prepared(folder_of(little, tmp_path), Wishes(180.0))
    shards = store_of(load_recipe(job.path)).current(keys.token_shards("my_text"))
    assert job.chosen.length.unique == pytest.approx(shards.counts["train_tokens"], rel=0.1)


FEW_WORDS = "the of and to in is that it was for on are with as his they be at one have this"


def few_words(folder: Path) -> None:
    draw = random.Random(0)
    texts = (" ".join(draw.choices(FEW_WORDS.split(), k=draw.randint(80, 160))) + "." for _ in range(3_000))
    (folder / "all.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


@pytest.fixture
def makes_data(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Jobs end with the data stages. Returns the recipes of those that were started."""
    started = []

    def execute(*_: object, **__: object) -> bool:
        started.append(path := Path(os.environ[RECIPE_VARIABLE]))
        try:
            make_data(load_recipe(path))
        except (PipelineError, OSError) as error:
            raise FailedJobError(str(error)) from error
        return False

    monkeypatch.setattr(jobs, "execute", execute)
    return started


def test_text_of_few_words_gets_a_vocabulary_that_it_supports(
    tmp_path: Path, makes_data: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = prepared(folder_of(few_words, tmp_path), Wishes(180.0))
    monkeypatch.setenv(RECIPE_VARIABLE, str(job.path))
    assert job.chosen.length.vocab_size > 512
    job.run()
    assert load_recipe(job.path).tokenizer.vocab_size == job.chosen.length.vocab_size <= 512
    assert len(makes_data) == 2  # one fails, and tells how many entries the text supports


def test_a_tokenizer_that_fails_for_another_reason_is_not_blamed_on_the_text(
    tmp_path: Path, makes_data: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "tokenizer").write_text("where a folder should be")
    job = prepared(folder_of(few_words, tmp_path), Wishes(180.0))
    monkeypatch.setenv(RECIPE_VARIABLE, str(job.path))
    before = job.path.read_text()
    with pytest.raises(FailedJobError, match="tokenizer"):
        job.run()
    assert job.path.read_text() == before
    assert len(makes_data) == 1


def test_nothing_but_zeros_is_told_in_seconds(tmp_path: Path) -> None:
    folder = folder_of(lambda _: None, tmp_path)
    with (folder / "zeros.txt").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(
        NothingReadableError, match=r"its 1 file \(1,073,741,824 bytes\).*of its bytes are zero"
    ):
        judged(folder)
