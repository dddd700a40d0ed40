"""Conversations in a folder are found, and learned where chat is asked for."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.recipe.loading import load_recipe
from pipeline.sources import open_source
from pipeline.start import jobs
from pipeline.start.choose import Wishes, choose
from pipeline.start.folder.look import NothingReadableError
from pipeline.start.following import Following
from pipeline.start.horizon import Deadline
from pipeline.start.reasons import notes
from pipeline.start.recipe_file import write
from pipeline.start.tuning import Tuning
from tests.folders import ENGLISH, GERMAN, chats, little
from tests.pipeline.sources.formats.test_transcripts import NAMED, WRITTEN
from tests.pipeline.start.test_start import fixed_speed, folder_of, judged, recipe_of
from trainer.system.clock import since_boot


def test_conversations_are_learned_after_the_text_where_chat_is_asked_for(tmp_path: Path) -> None:
    folder = folder_of(chats, tmp_path)
    recipe, _ = recipe_of(folder, Wishes(3600.0))
    assert recipe.post_training.sft is None
    recipe, _ = recipe_of(folder, Wishes(3600.0, chat=True))
    assert recipe.post_training.sft is not None
    assert recipe.post_training.sft.corpora[0].source.format == "chat"  # type: ignore[attr-defined]
    # Of the 20 conversations some are held out, and not as large a share of the text.
    assert recipe.post_training.sft.validation_fraction == pytest.approx(0.18, abs=0.01)
    assert recipe.shards.validation_fraction < 0.1
    (folder / "chats.jsonl").unlink()
    without = choose(judged(folder), Wishes(60.0, chat=True), fixed_speed())
    assert any("no conversations" in note for note in notes(without))


@pytest.mark.parametrize("form", [*WRITTEN, "Gemini"])
def test_marked_up_texts_and_contents_of_gemini_are_conversations(tmp_path: Path, form: str) -> None:
    folder = folder_of(chats, tmp_path)
    path = folder / "chats.jsonl"
    said = [[one["content"] for one in json.loads(row)["messages"]] for row in path.read_text().splitlines()]
    rows = [
        _contents(question, answer)
        if form == "Gemini"
        else {"text": WRITTEN[form]([("user", question), ("assistant", answer)])}
        for question, answer in said
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe, _ = recipe_of(folder, Wishes(3600.0, chat=True))
    assert recipe.post_training.sft is not None
    assert [corpus.name for corpus in recipe.corpora] == ["my_text"]
    for text in folder.glob("*.txt"):
        text.unlink()
    with pytest.raises(NothingReadableError, match=r"only rows of chat.* add a folder of texts"):
        choose(judged(folder), Wishes(3600.0, chat=True), fixed_speed())


@pytest.mark.parametrize("form", ["lines", "bold lines", "hh-rlhf"])
def test_files_of_text_that_are_conversations_are_learned_as_such_beside_other_texts(
    form: str, tmp_path: Path
) -> None:
    folder = folder_of(little, tmp_path)
    (folder / "about.txt").write_text("User: and Assistant: are the names of speakers.\n" + ENGLISH[0])
    talks_of_text = tmp_path / "talks"
    write = {**WRITTEN, **NAMED}[form]
    for place in (folder / "talks", talks_of_text):
        place.mkdir()
        for number in range(70):
            said = [("user", f"Why {number}?"), ("assistant", ENGLISH[number % 12][:200])]
            (place / f"{number}.md").write_text(write(said))
    recipe, _ = recipe_of(folder, Wishes(3600.0, chat=True))
    assert recipe.post_training.sft is not None
    (learned,) = recipe.post_training.sft.corpora
    assert learned.source.format == "chat"
    (text,) = recipe.corpora
    assert len(open_source(text.name, text.source).units()) == len([*folder.glob("*.txt")])
    # Without a wish for answers, and without other text, they are text, as any other.
    recipe, _ = recipe_of(folder, Wishes(3600.0))
    assert {corpus.source.format for corpus in recipe.corpora} == {"text"} and len(recipe.corpora) == 2
    chosen = choose(judged(talks_of_text), Wishes(3600.0, chat=True), fixed_speed())
    assert not chosen.conversations and [one.corpus.shape.format for one in chosen.corpora] == ["text"]
    assert any("learned as text: add other texts" in note for note in notes(chosen))


def test_a_conversation_among_many_texts_says_nothing_about_files_that_are_not_looked_at(
    tmp_path: Path,
) -> None:
    for number in range(200):
        text = "User: Why?\nAssistant: So.\n" if number == 0 else ENGLISH[number % 12]
        (tmp_path / f"{number:03}.txt").write_text(text)
    [shapes] = [{one.shape.format: one.files for one in judged(tmp_path).corpora}]
    assert shapes == {"chat": 1, "text": 199}


def _contents(question: str, answer: str) -> dict[str, object]:
    said = (("user", question), ("model", answer))
    return {"contents": [{"role": role, "parts": [{"text": text}]} for role, text in said]}


@pytest.mark.parametrize(
    ("chat", "why"), [(True, "the time is planned for"), (False, "is learned after answering")]
)
def test_preferences_are_counted_and_left_out_with_the_reason(tmp_path: Path, chat: bool, why: str) -> None:
    folder = folder_of(chats, tmp_path)
    pairs = [{"prompt": f"Why {n}?", "chosen": f"So {n}.", "rejected": f"No {n}."} for n in range(50)]
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    chosen = choose(judged(folder), Wishes(180.0, chat=chat), fixed_speed())
    (said,) = [note for note in notes(chosen) if "preferences" in note]
    assert re.match(r"The preferences, about (4|5|6)\d pairs, are not learned, since ", said)
    assert why in said and "section `dpo`" in said
    for path in [*folder.glob("*.txt"), folder / "chats.jsonl"]:
        path.unlink()
    with pytest.raises(NothingReadableError, match=r"only rows of preferences.* add a folder of texts"):
        choose(judged(folder), Wishes(180.0, chat=chat), fixed_speed())


def talks(number: int, turns: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        little(folder)
        with (folder / "talks.jsonl").open("w", encoding="utf-8") as file:
            for each in range(number):
                said = [(("user", f"Why {each}?"), ("assistant", f"{n} {GERMAN}")) for n in range(turns)]
                messages = [{"role": role, "content": text} for turn in said for role, text in turn]
                file.write(json.dumps({"messages": messages}) + "\n")

    return make


def learned_steps(path: Path) -> float:
    """Of the tuning of a recipe, as far as the sizes of its files tell."""
    sft = load_recipe(path).tuned("sft")
    size = sum(one.stat().st_size for one in path.parent.glob("*/*.jsonl"))
    assert sft.tuning
    return sft.tuning.epochs * size / 3.5 / sft.training.global_batch_tokens


@pytest.mark.parametrize("hours", [0.05, 0.2, 5])
@pytest.mark.parametrize(("number", "turns"), [(20, 1), (200, 4), (2_000, 1)])
def test_a_tuning_has_enough_steps_for_answers_to_end(
    number: int, turns: int, hours: float, tmp_path: Path
) -> None:
    """Three passes over 20 conversations were two steps, after which no answer ended."""
    folder = folder_of(talks(number, turns), tmp_path)
    recipe, _ = recipe_of(folder, Wishes(hours * 3600, chat=True))
    assert recipe.post_training.sft
    assert learned_steps(tmp_path / "recipe.yaml") > 100


def test_a_small_model_rehearses_its_text_where_the_steps_are_enough_for_both() -> None:
    """With few steps it would not learn to end its answers."""
    small, large = (Tuning(50_000, 512, 2_048, large) for large in (False, True))
    late, in_time = (small.fitting(seconds, tokens_per_second=5_000) for seconds in (20, 60))
    assert (late.rehearsal, in_time.rehearsal, large.fitting(20, 5_000).rehearsal) == (0, 0.2, 0.2)
    assert in_time.epochs == pytest.approx(300 * 512 / 50_000)


def test_a_late_start_still_learns_its_few_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = choose(judged(folder_of(chats, tmp_path)), Wishes(180.0, chat=True), fixed_speed())
    deadline = Deadline(180.0, began=since_boot() - 180)
    late = jobs.Jobs(tmp_path / "late.yaml", chosen, deadline, tmp_path, fixed_speed())
    write(late.path, chosen)
    trained = Following(tmp_path, "", 0, 5.0, pace=[(0.0, 0), (1.0, 5_000), (2.0, 10_000)])
    monkeypatch.setattr(jobs.Jobs, "_pretrain", lambda _: trained)
    monkeypatch.setattr(jobs, "execute", lambda *_, **__: False)
    late.run()
    assert learned_steps(late.path) > 80


@pytest.mark.parametrize("size", [300, 900])
def test_conversations_fit_into_windows_of_a_few_entries_too(tmp_path: Path, size: int) -> None:
    def make(folder: Path) -> None:
        (folder / "text.txt").write_text("\n\n".join(ENGLISH)[:20_000])
        said = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "q" * size}]
        (folder / "chat.jsonl").write_text(f"{json.dumps({'messages': said})}\n" * 40)

    recipe, _ = recipe_of(folder_of(make, tmp_path), Wishes(600.0, chat=True))
    assert recipe.tokenizer.vocab_size == 320
    assert recipe.training.seq_len > size
