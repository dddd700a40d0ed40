"""What a filter of the user's may return, and what becomes of documents that it fails on."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.plugins import document_filter
from pipeline.plugins.calling import failures_table
from pipeline.plugins.filters import Filter
from pipeline.plugins.loading import PluginError
from pipeline.plugins.settings import FilterParams
from tests.pipeline.plugins.code import batch, write

MODULE = """
    import pyarrow.compute as pc
    from pipeline.plugins import batch_filter, document_filter

    @document_filter
    def short(document, most=5):
        return len(document.text) <= most

    @document_filter
    def short_with_reason(document, most=5):
        return len(document.text) <= most, "long"

    def short_batch(documents, most=5):
        return pc.less_equal(pc.utf8_length(documents["text"]), most)

    @batch_filter(signals={"length": int})
    class Short:
        def __init__(self, unit=1):
            self.unit = unit

        def signals(self, documents):
            return {"length": pc.divide(pc.utf8_length(documents["text"]), self.unit)}

        def keep(self, signals, most=5):
            return signals["length"] <= most

    @document_filter(signals={"length": int})
    def measuring(document):
        return True

    @document_filter(signals={"number": float})
    class Number:
        def signals(self, document):
            return {"number": float(document.text)}

        def keep(self, signals, least=0.0):
            return signals["number"] >= least

    @batch_filter(signals={"length": int})
    class Doubtful:
        def signals(self, documents):
            return {"length": pc.utf8_length(documents["text"])}

        def keep(self, signals):
            if pc.any(pc.equal(signals["length"], 4)).as_py():
                raise ValueError("four")
            return pc.not_equal(signals["length"], 2)

    @document_filter
    def numeric(document):
        return int(document.text) > 0

    def numeric_batch(documents):
        return [int(text) > 0 for text in documents["text"].to_pylist()]

    @document_filter
    def forgetful(document):
        if len(document.text) > 3:
            return True

    @document_filter
    def shouts(document):
        return document.text.upper()

    @document_filter
    def leaves(document):
        if document.text == "bad":
            raise SystemExit("usage: score FILE")
        return True

    @document_filter
    def unspeakable(document):
        if document.text == "bad":
            raise ValueError(chr(0xD800))
        return True

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    @document_filter
    def mute(document):
        if document.text == "bad":
            raise Mute
        return True

    @document_filter
    def surrogate_reason(document):
        return document.text != "bad", chr(0xD800) if document.text == "bad" else None

    def one_for_all(documents):
        return [True]

    @document_filter
    def from_metadata(document, stars):
        return document.metadata["stars"] >= stars

    @document_filter
    class Undeclared:
        def signals(self, document):
            return {"length": len(document.text)}

        def keep(self, signals):
            return signals["length"] > 3

    @document_filter(signals={"length": int})
    class NoMethods:
        pass

    @document_filter(signals={"length": int})
    class Unnamed(Undeclared):
        def __init__(self, model=None):
            if model:
                raise FileNotFoundError(f"there is no {model}")

        def signals(self, document):
            return len(document.text)
"""


def a_filter(name: str, **params: object) -> Filter:
    found = Filter(FilterParams(python=f"mine.filters:{name}", version="1", params=params))
    found.check()
    return found


@pytest.fixture(autouse=True)
def module(code: Path) -> Path:
    return write(code, "mine.filters", MODULE)


@pytest.mark.parametrize("name", ["short", "short_with_reason", "short_batch", "Short"])
def test_one_document_a_batch_or_a_class_give_the_same_verdicts(name: str) -> None:
    found = a_filter(name, most=4)
    measured, failures = found.measure(batch("abc", "abcd", "abcde", ""))
    verdicts = found.judge(measured)
    assert verdicts.keep.tolist() == [True, True, False, True]
    assert not verdicts.failed.any()
    assert failures == []


def test_reasons_and_signals_are_in_the_table() -> None:
    measured, _ = a_filter("short_with_reason").measure(batch("abc", "abcdefg"))
    assert measured.to_pylist() == [
        {"id": "d0", "failed": False, "keep": True, "reason": "long"},
        {"id": "d1", "failed": False, "keep": False, "reason": "long"},
    ]
    measured, _ = a_filter("Short").measure(batch("abc", "abcdefg"))
    assert measured.to_pylist() == [
        {"id": "d0", "failed": False, "length": 3},
        {"id": "d1", "failed": False, "length": 7},
    ]


def test_a_document_brings_its_metadata() -> None:
    found = a_filter("from_metadata", stars=3)
    measured, _ = found.measure(batch("text", metadata='{"stars": 4}'))
    assert found.judge(measured).keep.tolist() == [True]


def test_the_class_is_constructed_with_what_it_takes_and_judges_with_the_rest() -> None:
    found = a_filter("Short", unit=2, most=1)
    assert (found.measured_with, found.judged_with) == ({"unit": 2}, {"most": 1})
    measured, _ = found.measure(batch("abc", "abcdef"))
    assert found.judge(measured).keep.tolist() == [True, False]


@pytest.mark.parametrize("name", ["numeric", "numeric_batch", "Number"])
def test_an_exception_sets_its_document_aside_and_no_other(name: str, module: Path) -> None:
    found = a_filter(name)
    measured, failures = found.measure(batch("1", "x7@example.org", "-2", "3", "many words, no number"))
    verdicts = found.judge(measured)
    assert verdicts.failed.tolist() == [False, True, False, False, True]
    assert verdicts.keep.tolist() == [True, False, False, True, False]
    assert [failure.id for failure in failures] == ["d1", "d4"]
    assert {failure.error for failure in failures} == {"ValueError"}
    number = next(n for n, line in enumerate(module.read_text().splitlines(), 1) if name in line)
    line = int(failures[0].place.removeprefix("mine/filters.py, line "))
    assert number < line <= number + 5


def test_the_message_of_an_exception_does_not_hold_the_documents_text() -> None:
    _, failures = a_filter("numeric").measure(batch("jane.doe@example.com wrote"))
    assert failures[0].message == "invalid literal for int() with base 10: '...'"


def test_a_wrong_return_value_is_named_with_what_would_be_right() -> None:
    _, failures = a_filter("forgetful").measure(batch("abcd", "abc"))
    assert [failure.id for failure in failures] == ["d1"]
    assert failures[0].message.startswith("mine.filters:forgetful returned None: return True, False,")


def test_a_filter_that_returns_the_text_is_told_so_without_the_text() -> None:
    _, failures = a_filter("shouts").measure(batch("jane doe called"))
    assert failures[0].message.startswith("mine.filters:shouts returned str: return True, False,")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("leaves", "SystemExit", "usage: score FILE"),
        ("unspeakable", "ValueError", "\\ud800"),
        ("mute", "Mute", ""),
        (
            "surrogate_reason",
            "TypeError",
            "reason is not a column of string: 'utf-8' codec can't encode character '\\ud800' in position 0: "
            "surrogates not allowed",
        ),
    ],
)
def test_no_exception_of_one_document_ends_the_run(name: str, error: str, message: str) -> None:
    found = a_filter(name)
    measured, failures = found.measure(batch("good", "bad"))
    assert found.judge(measured).keep.tolist() == [True, False]
    assert [(failure.id, failure.error, failure.message) for failure in failures] == [("d1", error, message)]
    assert failures_table(failures).to_pylist()[0]["message"] == message


def test_a_batch_with_a_wrong_number_of_values_fails_on_each_of_its_documents() -> None:
    found = a_filter("one_for_all")
    measured, failures = found.measure(batch("Number 1 of", "the 2"))  # these numbers are no secrets
    assert found.judge(measured).failed.tolist() == [True, True]
    assert [failure.message for failure in failures] == ["keep has 1 values for 2 documents"] * 2


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("measuring", {}, "mine.filters:measuring is a function: only a class gives signals"),
        ("short", {"mots": 3}, "got an unexpected keyword argument 'mots'; it takes most"),
        ("from_metadata", {}, "missing a required argument: 'stars'; it takes stars"),
        ("Short", {"mots": 3}, "got an unexpected keyword argument 'mots'; it takes unit, most"),
        ("shrot", {}, r"has no 'shrot': did you mean 'short'\?"),
        ("Undeclared", {}, r"Undeclared declares no signals: mark it with @document_filter\(signals="),
        ("NoMethods", {}, "NoMethods has no method 'signals'"),
    ],
)
def test_a_mistake_in_the_recipe_is_one_sentence(name: str, params: dict, said: str) -> None:
    with pytest.raises(PluginError, match=said):
        a_filter(name, **params)


def test_a_class_that_cannot_be_made_or_gives_no_dictionary_says_so() -> None:
    with pytest.raises(
        PluginError, match="Unnamed cannot be constructed: FileNotFoundError: there is no lid"
    ):
        a_filter("Unnamed", model="lid").measure(batch("text"))
    _, (failure,) = a_filter("Unnamed").measure(batch("text"))
    assert failure.message == "mine.filters:Unnamed returned 4: signals are a dictionary by name"


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        (["length"], "`signals` is a dictionary of names and types"),
        ({"length": list}, "`signals` is a dictionary of names and types"),
        ({"keep": float}, "a signal cannot be called 'keep'"),
    ],
)
def test_signals_that_cannot_be_stored_are_refused_where_they_are_declared(signals: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        document_filter(signals=signals)


def test_thresholds_judge_each_document_though_one_cannot_be_judged() -> None:
    found = a_filter("Doubtful")
    measured, _ = found.measure(batch("1", "22", "4444", "333", "22222"))
    verdicts = found.judge(measured)
    assert verdicts.keep.tolist() == [True, False, False, True, True]
    assert verdicts.failed.tolist() == [False, False, True, False, False]
