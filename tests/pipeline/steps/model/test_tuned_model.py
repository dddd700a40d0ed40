"""What a held-out conversation is asked, and that none of them ends an evaluation."""

import json
import time
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.recipe.recipe import Recipe
from pipeline.sources.documents import document_id, own_id
from pipeline.sources.files import FilesConfig
from pipeline.stages import bpe
from pipeline.stages.dedup import DedupParams
from pipeline.stages.held_out import held_out
from pipeline.stages.pii import PiiParams
from pipeline.stages.quality import PROFILES
from pipeline.steps.model.tuned_model import NO_QUESTION, TOO_LONG, Question, judged, to_ask
from pipeline.steps.model.tuned_model_text import losses, section
from pipeline.store.store import Store
from tests.integration.project import TRAINING
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import collect, deduplicate, judge, scrub, tokenizer

Turn = tuple[str, str]
ASK, ANSWER, THANKS = ("user", "a"), ("assistant", "b"), ("user", "thanks, bye")


FRACTION = 0.4


def held_out_one(name: str) -> bool:
    return bool(held_out(pa.array([document_id("talks", own_id(name))]), FRACTION)[0])


def text(*said: Turn) -> str:
    return "".join(f"\x1e{role}\x1f{content}" for role, content in said)


def question(*said: Turn, **metadata: Any) -> Question:
    found = Question.of(text(*said), metadata, "talks")
    assert isinstance(found, Question)
    return found


def test_a_conversation_that_ends_with_a_question_is_judged_by_its_last_answer() -> None:
    found = question(ASK, ANSWER, THANKS)
    assert (found.messages, found.wanted) == ([{"role": "user", "content": "a"}], "b")
    assert judged([found], [{"text": " b", "stops": True}])[0]["right"]
    assert len(question(ASK, ANSWER, ASK, ("assistant", "c")).messages) == 3


@pytest.mark.parametrize("said", [(ANSWER,), (ANSWER, THANKS), (ASK,), ()])
def test_a_conversation_in_which_nothing_is_asked_is_counted(said: tuple[Turn, ...]) -> None:
    assert Question.of(text(*said), {}, "talks") == NO_QUESTION


def test_a_conversation_longer_than_the_context_is_asked_for_the_last_answer_that_fits() -> None:
    said = text(ASK, ANSWER, ASK, ("assistant", "c"))
    for fitting, wanted in ((4, "c"), (3, "b"), (2, "b")):
        found = Question.of(said, {}, "talks", lambda _, fitting=fitting: fitting)  # type: ignore[misc]
        assert isinstance(found, Question) and found.wanted == wanted
    assert Question.of(said, {}, "talks", lambda _: 1) == TOO_LONG


@pytest.mark.parametrize("form", ["(", 42, ["a"], None, {}])
def test_a_form_of_an_older_store_that_is_no_regular_expression_is_not_asked_for(form: Any) -> None:
    asked = [question(ASK, ANSWER, form=one) for one in (form, "[a-c]")]
    assert [one["form"] for one in judged(asked, [{"text": "b", "stops": True}] * 2)] == [None, True]


def test_a_form_that_takes_forever_ends_no_evaluation_and_hides_no_other_answer() -> None:
    text = "a" * 40
    wanted = [r"(a+)+b", "a*", None, r"(a+)+b", "b*"]
    asked = [question(ASK, ("assistant", text), form=form) for form in wanted]
    started = time.monotonic()
    found = judged(asked, [{"text": text, "stops": True}] * 5)
    assert [one["form"] for one in found] == [None, True, None, None, False]
    assert all(one["right"] for one in found)
    assert time.monotonic() - started < 20  # by itself, it would take days
    tuning = {"losses": {"after": {"text": {"loss": 1.0}, "answers": None}}, "kinds": [{"kind": "all"}]}
    said = section({**tuning, "asked": 5, "slow_forms": 2, "conversations": []})
    assert "For 2, the form is not known: their regular expression takes longer than a second." in said


def test_answers_that_were_cut_off_are_counted_on_the_card() -> None:
    tuning = {"losses": {"after": {"text": {"loss": 1.0}, "answers": None}}, "kinds": [{"kind": "all"}]}
    counted = {"asked": 100, "limit": 48, "unended": {"before": 12, "after": 0}, "conversations": []}
    said = section({**tuning, **counted})
    assert "12 of 100 answers before tuning did not end within 48 tokens." in said
    assert "after tuning did not end" not in said
    assert "`python -m trainer chat` samples" not in said
    said = section({**tuning, **counted, "unended": {"before": 12, "after": 3}})
    assert "3 of 100 answers after tuning did not end within 48 tokens." in said
    assert "`python -m trainer chat` samples" in said


def test_the_loss_of_pairs_is_not_called_that_of_answers() -> None:
    pairs = {"loss": 0.6931, "answer_loss": 2.5, "accuracy": 0.5, "margin": 0.25, "chosen_change": -0.5}
    before = {"answers": {"answer_loss": 2.75}, "text": {"loss": 3.5}}
    rows = losses({"losses": {"before": before, "after": {"answers": pairs, "text": {"loss": 3.25}}}})
    shown = {(row["held-out"], row["figure"]): (row["before"], row["after"]) for row in rows}
    assert shown[("answers", "preference loss")] == ("", "0.6931")
    assert shown[("answers", "loss of the better answers")] == ("2.7500", "2.5000")
    assert shown[("text of the pretraining", "loss")] == ("3.5000", "3.2500")
    assert ("answers", "loss") not in shown


@pytest.mark.slow
def test_what_does_not_fit_is_counted_as_for_the_shards_and_said_on_the_card(tmp_path: Path) -> None:
    talks = [[ASK, ("assistant", f"Number {n}.")] for n in range(20)]
    talks += [
        [("user", "word " * 300), ANSWER],
        [*talks[0], ("user", "word " * 300), ("assistant", "c")],
        [ANSWER],
    ]
    ids = (name for name in map(str, count()) if held_out_one(name))
    rows = [
        {"id": name, "messages": [{"role": role, "content": said} for role, said in talk]}
        for name, talk in zip(ids, talks, strict=False)
    ]
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = {"kind": "files", "paths": [str(path)], "format": "chat"}
    store = Store(tmp_path / "store")
    collect(store, ENGINE, "talks", FilesConfig.model_validate(source), 20_000)
    scrub(store, ENGINE, "talks", PiiParams())
    judge(store, ENGINE, "talks", PROFILES["none"])
    deduplicate(store, ENGINE, ["talks"], DedupParams())
    (tmp_path / "tokenizer").mkdir()
    made = bpe.files(bpe.train([pa.array(TEXTS)], bpe.TokenizerParams(vocab_size=400, chat=True)))
    for name, content in made.items():
        (tmp_path / "tokenizer" / name).write_text(content)
    existing = bpe.ExistingTokenizer(source=str(tmp_path / "tokenizer"))
    tokenizer(store, ENGINE, "mine", ["talks"], existing, FRACTION)
    training = TRAINING | {"objective": "sft", "pretrained": {"path": str(tmp_path)}}
    recipe = Recipe.model_validate(
        {
            "name": "mine",
            "corpora": [{"name": "talks", "source": source}],
            "tokenizer": {"from": str(tmp_path / "tokenizer")},
            "shards": {"validation_fraction": FRACTION},
            "training": training,
        }
    )
    questions, not_asked = to_ask(store, recipe)
    assert len(questions) == 21 and dict(not_asked) == {TOO_LONG: 1, NO_QUESTION: 1}
    tuning = {"losses": {"after": {"text": {"loss": 1.0}, "answers": None}}, "kinds": [{"kind": "all"}]}
    said = section({**tuning, "asked": 21, "not_asked": not_asked, "conversations": []})
    assert "1 more are not asked: their first question does not fit into the context." in said
