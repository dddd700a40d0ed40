"""Questions about installed functions: right answers, worse ones by rule, a module on one side as a whole."""

import functools
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from pipeline.sources import SourceConfig, open_source
from pipeline.sources.docstrings import functions
from pipeline.sources.source import Rejected
from pipeline.stages.held_out import held_out
from pipeline.store.params import CONTENT, MESSAGE, PAIR

CONFIG = {"kind": "python_questions", "packages": ["python", "jinja2"], "max_documents": 600}
SHAPES = {
    "meaning": (r"What does .*\) do\?", r"[^.]{19,160}\."),
    "parameters": (r"Which parameters does .*\) take\?", r"It takes [\w, ]+\."),
    "count": (r"How many parameters does .*\) take\?", r"It takes \d+\."),
    "yes_no": (r"Does .*\) take \w+\?", r"(Yes|No)\."),
    "module": (r"In which module is [\w.]+\?", r"It is in the module [\w.]+\."),
}


def rows(corpus: str = "c", **config: Any) -> list[dict[str, Any]]:
    source = open_source(corpus, TypeAdapter(SourceConfig).validate_python({**CONFIG, **config}))
    rejects: list[Rejected] = []
    found = [
        row for unit in source.units() for batch in source.read(unit, rejects) for row in batch.to_pylist()
    ]
    assert not rejects
    return [{**row, **json.loads(row["metadata"])} for row in found]


questions = functools.cache(functools.partial(rows, format="chat"))
preferences = functools.cache(functools.partial(rows, "other", format="preferences"))


def asked_and_answered(text: str) -> list[str]:
    """The question and the answer."""
    said = re.fullmatch(f"{MESSAGE}user{CONTENT}(.*){MESSAGE}assistant{CONTENT}(.*)", text)
    assert said
    return [*said.groups()]


def test_each_question_has_the_answer_of_its_kind() -> None:
    kinds = Counter(row["kind"] for row in questions())
    assert set(kinds) == set(SHAPES) and min(kinds.values()) > 80
    assert len({row["text"] for row in questions()}) == len({row["id"] for row in questions()}) > 1000
    for row in questions():
        asked, answer = asked_and_answered(row["text"])
        assert all(map(re.fullmatch, SHAPES[row["kind"]], (asked, answer)))
        _, _, names = asked.partition("(")
        given = list(filter(None, names.rpartition(")")[0].split(", ")))
        if row["kind"] == "count":
            assert answer == f"It takes {len(given)}."
        if row["kind"] == "parameters":
            assert answer[9:-1].split(", ") == (given or ["nothing"])
        if row["kind"] == "yes_no":
            assert (answer == "Yes.") == (re.split(r"[ ?]", asked)[-2] in given)
    answers = Counter(asked_and_answered(row["text"])[1] for row in questions() if row["kind"] == "yes_no")
    assert min(answers.values()) > 0.2 * sum(answers.values())


def test_the_worse_answer_is_another_of_like_length_or_goes_on() -> None:
    right: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in preferences():
        right[row["module"], row["kind"]].add(asked_and_answered(row["text"].split(PAIR)[0])[1])
    rules = Counter(row["rule"] for row in preferences())
    assert set(rules) == {"goes_on", "other_answer"} and min(rules.values()) > 0.4 * sum(rules.values())
    apart = []
    for row in preferences():
        (asked, chosen), (again, rejected) = map(asked_and_answered, row["text"].split(PAIR))
        other = rejected.removeprefix(f"{chosen} ") if row["rule"] == "goes_on" else rejected
        assert asked == again and chosen != other and other in right[row["module"], row["kind"]]
        assert row["rule"] == "other_answer" or rejected == f"{chosen} {other}"
        apart.append(abs(len(other) - len(chosen)) / len(chosen))
    assert np.mean(apart) < 0.25


@pytest.mark.parametrize("fraction", [0.08, 0.2])
def test_a_module_is_held_out_as_a_whole_in_every_corpus(fraction: float) -> None:
    sides: dict[str, set[bool]] = defaultdict(set)
    for found in (questions(), preferences()):
        for row, side in zip(found, held_out(pa.array([row["id"] for row in found]), fraction), strict=True):
            sides[row["module"]].add(bool(side))
    assert {len(both) for both in sides.values()} == {1}
    assert 0 < sum(True in both for both in sides.values()) < 2 * fraction * len(sides)


def test_questions_in_another_process_are_the_same() -> None:
    code = (
        "import json, sys\nfrom tests.pipeline.sources.test_python_questions import rows\n"
        "print(json.dumps(rows(packages=['jinja2'], format='preferences')))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert json.loads(done.stdout) == rows(packages=["jinja2"], format="preferences")


def test_functions_are_public_named_once_and_described_by_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = b'''
class Long:
    def method(self, a, /, b=1, *rest, c, **more):
        """Does the thing that it is for.

        And more."""
    def _hidden(self): "Does the thing that it is for."
async def wait(): "Waits until it is there; e.g. a file. Then it ends."
def short(): "Too short."
def open_ended(): "Does the thing that it is for"
def foreign(): "Does the thing, \xc3\xa9t cetera, for all."
def wait(x): "Waits until it is there for a second time."
'''
    assert [tuple(found) for found in functions(source)] == [
        ("Long.method", ("a", "b", "c"), "Does the thing that it is for.")
    ]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fresh_functions").mkdir()
    (tmp_path / "fresh_functions" / "__init__.py").write_bytes(source)
    kinds = [row["kind"] for row in rows(packages=["fresh_functions"], format="chat")]
    assert len(kinds) == 2 and kinds[0] == "meaning"
    # one answer of a kind alone: there is no other to compare it with
    assert rows(packages=["fresh_functions"], format="preferences") == []
