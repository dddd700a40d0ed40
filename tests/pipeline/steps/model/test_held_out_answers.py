"""The held-out answers that variants of a section are scored on, and what a measure of them counts."""

import math

import pytest

from pipeline.reports.variant_arms import decisive
from pipeline.sources.benchmarks.items import Benchmark, Question
from pipeline.steps.model.benchmark import AskedBenchmark
from pipeline.steps.model.held_out_answers import Message, Reply, of_text

TALK: list[Message] = [
    ("system", "be brief"),
    ("user", "one?"),
    ("assistant", "eins"),
    ("user", "two?"),
    ("assistant", "zwei und ü"),
]
WORSE: list[Message] = [*TALK[:4], ("assistant", "drei")]


def text(*conversations: list[Message]) -> str:
    return "\x1d".join(
        "".join(f"\x1e{role}\x1f{content}" for role, content in said) for said in conversations
    )


def shown(one: Reply) -> tuple[int, tuple[str, ...]]:
    return len(one.messages), one.continuations


def test_each_answer_that_fits_is_scored_behind_what_is_said_before_it() -> None:
    assert [shown(one) for one in of_text(text(TALK), len)] == [(2, ("eins",)), (4, ("zwei und ü",))]
    assert [shown(one) for one in of_text(text(TALK), lambda said: 4)] == [(2, ("eins",))]
    (first, *_) = of_text(text(TALK), len)
    assert [one["content"] for one in first.messages] == ["be brief", "one?"]


def test_of_a_preference_the_two_answers_that_differ_are_compared_if_both_fit() -> None:
    assert [shown(one) for one in of_text(text(TALK, WORSE), len)] == [(4, ("zwei und ü", "drei"))]
    assert list(of_text(text(TALK, WORSE), lambda said: 4)) == []


def test_a_measure_of_held_out_answers_equals_a_plain_computation() -> None:
    """Two answers in one conversation, one in another: bits and bytes are summed for each conversation."""
    replies = [*of_text(text(TALK), len), *of_text(text(TALK[:3]), len)]
    benchmark = Benchmark("talks.answers", tuple(replies), None)
    measure = AskedBenchmark(benchmark, {}, ("0", "0", "1"), answers=True)
    assert measure.sizes.tolist() == [len("eins") + len("zwei und ü".encode()), len("eins")]
    bits = measure.bits([[-3.0], [-5.0], [-2.0]])
    assert bits.tolist() == pytest.approx([8 / math.log(2), 2 / math.log(2)])


def test_a_preference_counts_by_its_better_answer_and_is_wrong_where_the_worse_one_is_likelier() -> None:
    replies = [*of_text(text(TALK, WORSE), len)] * 2
    benchmark = Benchmark("pairs.answers", tuple(replies), "accuracy")
    measure = AskedBenchmark(benchmark, {}, ("0", "1"), answers=True)
    assert measure.bits([[-3.0, -4.0], [-3.0, -2.0]]).tolist() == pytest.approx([3 / math.log(2)] * 2)
    assert measure.wrong([[-3.0, -4.0], [-3.0, -2.0]]).tolist() == [0.0, 1.0]


def test_held_out_answers_decide_before_texts_and_these_before_benchmarks() -> None:
    window = Question(context="", continuations=("a window",), gold=0)
    quiz = AskedBenchmark(Benchmark("quiz", (window,), None), {})
    wiki = AskedBenchmark(Benchmark("wiki", (window,), None), {}, ("0",))
    replies = tuple(of_text(text(TALK[:3]), len))
    talks = AskedBenchmark(Benchmark("talks.answers", replies, None), {}, ("0",), answers=True)
    assert [one.name for one in decisive([talks, wiki, quiz])] == ["talks.answers"]
    assert [one.name for one in decisive([wiki, quiz])] == ["wiki"]
    assert [one.name for one in decisive([quiz])] == ["quiz"]
