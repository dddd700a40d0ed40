"""Arms of several seeds: verdicts against one of them, ranks, controls, and what more would take."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.recipe.recipe import Recipe
from pipeline.reports.variant_arms import Arm, lost_text
from pipeline.reports.verdict import against, ranks
from pipeline.reports.verdict_text import advice, control, quoted, rows, sentence, summary
from pipeline.sources.benchmarks.items import Benchmark, Question
from pipeline.steps.model import benchmark
from pipeline.steps.model.benchmark import AskedBenchmark
from pipeline.store import keys
from pipeline.store.manifest import Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from tests.pipeline.steps.training.test_plan import recipe

TEXT = AskedBenchmark(
    Benchmark(
        "text", tuple(Question(context="", continuations=("x" * 100,), gold=0) for _ in range(30)), None
    ),
    {},
    tuple(str(number // 2) for number in range(30)),
)
QUIZ = AskedBenchmark(
    Benchmark(
        "quiz",
        tuple(Question(context="a", continuations=(" yes", " no"), gold=number % 2) for number in range(20)),
        "accuracy",
    ),
    {},
)


def arm(name: str, bits_per_byte: float, seeds: int = 3, control: str | None = None, wanted: int = 3) -> Arm:
    chance = np.random.default_rng([seeds, *name.encode()])
    runs = bits_per_byte + chance.normal(0, 0.001, (seeds, 1)) + chance.normal(0, 0.001, (seeds, 15))
    names = [name, *(f"{name}.{number}" for number in range(2, wanted + 1))]
    quiz = chance.normal(1, 0.1, (seeds, 20))
    wrong = (chance.random((seeds, 20)) < 0.5).astype(float)
    return Arm(
        name,
        control,
        names[:seeds],
        names[seeds:],
        {"text": runs * TEXT.sizes, "quiz": quiz} if seeds else {},
        {"quiz": wrong} if seeds else {},
        60.0 if seeds else None,
        None,
    )


def named(*arms: Arm) -> dict[str, Arm]:
    return {one.name: one for one in arms}


def words(arms: dict[str, Arm], compared_on: Sequence[AskedBenchmark] = (TEXT, QUIZ)) -> dict[str, str]:
    return {one.theirs: one.word for one in against(compared_on, arms, "base")}


def test_each_variant_gets_a_word_by_its_evaluation_texts() -> None:
    arms = named(arm("base", 2), arm("good", 1.9), arm("bad", 2.1), arm("same", 2))
    assert words(arms) == {"good": "better", "bad": "worse", "same": "not distinguishable"}
    (found, *_) = against([TEXT, QUIZ], arms, "base")
    assert sentence(found).startswith("good is better than base: -0.1")
    assert "corrected for 3 comparisons" in sentence(found)
    by_text = {row["text"]: row for row in rows(found)}
    assert by_text["all"]["difference"] == by_text["text"]["difference"]
    assert by_text["text"]["accuracy"] == "-" and "±" in by_text["quiz"]["accuracy"]


def test_more_comparisons_widen_the_intervals_and_controls_do_not() -> None:
    few = named(arm("base", 2), arm("other", 2.01))
    more = few | named(*(arm(f"v{number}", 2) for number in range(9)))
    controlled = few | named(arm("spoilt", 2.2, control="duplicates"))
    width = {
        len(arms): verdict.total.high - verdict.total.low
        for arms in (few, more, controlled)
        for verdict in against([TEXT], arms, "base")[:1]
        if verdict.total
    }
    assert width[len(more)] > 1.3 * width[len(few)]
    assert width[len(controlled)] == width[len(few)]


def test_too_few_seeds_give_no_verdict_but_say_what_is_missing() -> None:
    arms = named(arm("base", 2, seeds=2), arm("other", 1, seeds=2), arm("none", 1, seeds=0))
    assert words(arms) == {"other": "no verdict yet", "none": "no verdict yet"}
    other, none = against([TEXT], arms, "base")
    assert sentence(other) == (
        "no verdict yet on other against base: it needs 3 seeds of each, 2 have ended."
    )
    shown = {row["variant"]: row for row in summary(arms, [other, none])}
    assert shown["none"]["difference"] == shown["none"]["interval"] == shown["none"]["would be found"] == "-"
    assert "nan" not in str(shown)
    assert advice(none, arms, 0.004) == "Three seeds of each: --run (4 runs, about 4 minutes here)."
    one_each = named(arm("base", 2, seeds=1, wanted=1), arm("none", 1, seeds=0, wanted=1))
    (found,) = against([TEXT], one_each, "base")
    assert advice(found, one_each, 0.004) == (
        "Three seeds of each: `seeds: 3`, then --run (5 runs, about 5 minutes here)."
    )


def test_a_text_of_fewer_than_five_documents_or_sources_gives_no_verdict() -> None:
    small = replace(TEXT, clusters=tuple(str(number % 4) for number in range(30)))

    def of_four(one: Arm) -> Arm:
        return replace(one, bits={"text": one.bits["text"][:, :4], "quiz": one.bits["quiz"]})

    arms = named(of_four(arm("base", 2)), of_four(arm("good", 1)))
    (found,) = against([small, QUIZ], arms, "base")
    assert found.word == "cannot tell"
    assert "at least 5 documents" in sentence(found) and "text has 4" in sentence(found)
    assert "evaluation.texts" in advice(found, arms, 0.004)
    assert ranks([small, QUIZ], arms.values()) == {"base": 1, "good": 1}


def test_runs_that_read_a_source_tuned_model_it_changed_are_not_compared() -> None:
    def that_read(one: Arm, *contents: str, settings: str = "all") -> Arm:
        return replace(one, read=frozenset(("notes", settings, content) for content in contents))

    base, good = that_read(arm("base", 2), "before"), that_read(arm("good", 1), "after")
    (found,) = against([TEXT], named(base, good), "base")
    assert found.word == "cannot tell" and found.changed == ["notes"]
    assert "the source of notes changed between their runs" in sentence(found)
    assert "--run" in advice(found, named(base, good), 0.004)
    assert ranks([TEXT], [base, good]) == {"base": 1, "good": 1}
    mixed = that_read(arm("base", 2), "before", "after")  # one seed earlier than the others
    assert words(named(mixed, good), [TEXT]) == {"good": "cannot tell"}
    other = that_read(arm("good", 1), "part of it", settings="fewer documents")
    assert words(named(base, other), [TEXT]) == {"good": "better"}
    assert words(named(base, that_read(arm("good", 1), "before")), [TEXT]) == {"good": "better"}


def test_what_was_seen_with_more_seeds_than_a_look_takes_waits_for_the_next_look() -> None:
    arms = named(arm("base", 2, seeds=5, wanted=6), arm("other", 2, seeds=4, wanted=6))
    assert against([TEXT], arms, "base")[0].seeds == 3


def test_advice_names_seeds_and_their_cost() -> None:
    arms = named(arm("base", 2), arm("other", 2.001))
    (found,) = against([TEXT], arms, "base")
    assert found.word == "not distinguishable"
    assert advice(found, arms, 1.0) == ""
    told = advice(found, arms, 0.002)
    assert told.startswith("To see a difference as small as 0.002: `seeds: ") and "minutes here" in told
    assert "train for longer" in advice(found, arms, 1e-7)
    for number in range(40):  # what has been done is never advised
        arms = named(arm("base", 2), arm(f"v{number}", 2))
        (found,) = against([TEXT], arms, "base")
        assert "`seeds: 3`, then" not in advice(found, arms, 0.004)


def test_a_control_that_did_not_lose_takes_trust_from_every_verdict() -> None:
    arms = named(arm("base", 2), arm("half", 2.1, control="duplicates"))
    assert "half lost, as it must, by 0.09" in control(arms, against([TEXT], arms, "base"))
    arms = named(arm("base", 2), arm("half", 2, control="duplicates"))
    assert "half did not lose" in control(arms, against([TEXT], arms, "base"))
    arms = named(arm("base", 2), arm("half", 2, control="duplicates"), arm("mixed", 2.2, control="shuffled"))
    told = control(arms, against([TEXT], arms, "base"))
    assert "half did not lose" in told and "mixed lost, as it must" in told
    arms = named(arm("base", 2), arm("half", 2, seeds=1, control="duplicates"))
    told = control(arms, against([TEXT], arms, "base"))
    assert told == "The negative control half has not been trained with 3 seeds yet."
    arms = named(arm("base", 2))
    assert "No variant is a negative control" in control(arms, [])


def test_texts_that_were_not_searched_for_in_the_training_text_are_named() -> None:
    text = {"name": "unread", "source": {"kind": "files", "paths": ["unread.jsonl"]}}
    written = {**recipe().model_dump(mode="json", by_alias=True), "evaluation": {"texts": [text]}}
    told = quoted(Recipe.model_validate(written))
    assert told.startswith("Training text may quote unread")
    for section in ("benchmarks", {"sets": "benchmarks", "action": "report"}):
        said = quoted(Recipe.model_validate(written | {"decontamination": section}))
        assert said == ("" if section == "benchmarks" else told)


def test_only_what_differs_has_another_rank() -> None:
    arms = [arm("base", 2), arm("same", 2), arm("good", 1.9), arm("bad", 2.2), arm("few", 1, seeds=2)]
    assert ranks([TEXT], arms) == {"good": 1, "base": 2, "same": 2, "bad": 4}


def test_a_question_counts_by_its_right_answer_and_is_wrong_where_another_is_likelier() -> None:
    answers = [[-3.0, -2.0] if number < 15 else [-2.0, -3.0] for number in range(20)]
    bits = QUIZ.bits(answers)
    assert bits[0] == pytest.approx(3 / np.log(2) / len(" yes"))
    assert bits[1] == pytest.approx(2 / np.log(2) / len(" no"))
    # even ones are right with " yes", the likelier of the last five; odd ones with " no"
    assert QUIZ.wrong(answers).tolist() == [float((number % 2 == 0) == (number < 15)) for number in range(20)]


def test_a_variant_whose_tokenizer_loses_text_is_not_compared(tmp_path: Path) -> None:
    store, asked = Store(tmp_path), TEXT
    work = Work(keys.benchmarks("run-00000001"), benchmark.VERSION, {}, {"text": asked.sha256})
    assert lost_text(store, "run-00000001", [TEXT]) == ""
    with store.making(work) as draft:
        assert not isinstance(draft, Version)
        (draft.path / "text.log_likelihoods.jsonl").write_text('{"log_likelihoods": [-1.0]}\n')
        scores = {"items": 1, "bits_per_byte": None, "not_given_back": 0.25}
        draft.publish([benchmark._part(draft, asked.benchmark, "made from", scores)])
    assert lost_text(store, "run-00000001", [TEXT, QUIZ]) == "25.0% of 'text'"
