"""What is read of the results of lm-evaluation-harness, and what is refused."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.steps.model import benchmark
from pipeline.steps.model.harness import Results
from pipeline.store.errors import PipelineError
from tests.pipeline.steps.model import lm_eval
from trainer.system.intervals import wilson


def test_accuracies_are_those_of_the_harness_with_what_follows_from_the_samples(tmp_path: Path) -> None:
    found = Results.read(lm_eval.write(tmp_path, "somewhere"))
    (title,) = found.scores
    scores = found.scores[title]
    assert title == "lm-eval:own" and not found.left_out
    assert scores["accuracy"] == wilson(3, 4) and scores["accuracy_per_character"]["value"] == 0.5
    assert scores["chance"] == pytest.approx(1 / 3) and scores["accuracy_per_byte"] is None
    right, wrong = 6.173091888427734 / len(" name"), 16.047473907470703 / len(" error")
    assert scores["bits_per_byte"]["value"] == pytest.approx((3 * right + wrong) / 4 / math.log(2))
    (row,) = benchmark.table(found.scores)
    assert row["accuracy"].startswith("75.0") and row["by character"].endswith("*")
    assert row["chance"] == "33.3" and row["texts removed"] == "unknown"


def test_without_samples_or_with_others_chance_and_bits_are_not_known(tmp_path: Path) -> None:
    path = lm_eval.write(tmp_path, "somewhere")
    (samples,) = tmp_path.glob("samples_*")
    lines = samples.read_text().splitlines()
    for left in (lines[:3], [*lines[:3], "not JSON"], None):
        samples.unlink() if left is None else samples.write_text("\n".join(left))
        found = Results.read(path)
        assert not found.answers
        (row,) = benchmark.table(found.scores)
        assert row["accuracy"].startswith("75.0") and row["chance"] == row["bits per byte"] == "-"
        assert benchmark.verdict(found.scores) == (True, "What chance would score is not known.")


def test_a_group_stands_for_its_tasks_and_each_filter_of_a_generation_for_itself(tmp_path: Path) -> None:
    rows = {
        "all": {"acc,none": 0.25, "acc_stderr,none": 0.1, "sample_count": {"acc,none": 8}},
        "first": {"acc,none": 0.5},
        "second": {"acc,none": 0.0},
        "sums": {"exact_match,strict": 0.25, "exact_match,flexible": 0.5, "exact_match_stderr,strict": 0.1},
        "text": {"word_perplexity,none": 12.5, "bits_per_byte,none": 0.9, "bits_per_byte_stderr,none": "N/A"},
    }
    better = {"sums": {"exact_match": True}, "text": {"word_perplexity": False, "bits_per_byte": False}}
    sizes = {task: {"effective": 4} for task in rows if task != "all"}
    groups = {"all": ["first", "second"], "sums": []}
    given = {"results": rows, "group_subtasks": groups, "higher_is_better": better, "n-samples": sizes}
    found = Results.read(lm_eval.write(tmp_path, "somewhere", **given))
    shares = {title: (one["items"], one["accuracy"]["value"]) for title, one in found.scores.items()}
    assert shares == {
        "lm-eval:all": (8, 0.25),
        "lm-eval:sums exact_match strict": (4, 0.25),
        "lm-eval:sums exact_match flexible": (4, 0.5),
    }
    assert found.left_out == ["lm-eval:text word_perplexity", "lm-eval:text bits_per_byte"]
    only = given | {"results": {"text": rows["text"]}}
    with pytest.raises(PipelineError, match="holds no share of right answers, only lm-eval:text word_perp"):
        Results.read(lm_eval.write(tmp_path, "somewhere", **only))


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"results": {"own": {"acc": 1}}})])
def test_another_format_is_refused_in_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(PipelineError, match=r"results\.json is not from lm-evaluation-harness.*: give the"):
        Results.read(path)
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        Results.read(tmp_path / "none.json")


def test_results_of_another_model_are_refused(tmp_path: Path) -> None:
    models = {name: tmp_path / name for name in ("ours", "copy", "other")}
    for name, path in models.items():
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"another" if name == "other" else b"weights")
    for name, path in models.items():
        results = Results.read(lm_eval.write(tmp_path, str(path)))
        if name == "other":
            with pytest.raises(
                PipelineError, match=r"of another model, .*other, not of .*ours: give --model"
            ):
                results.check_model(models["ours"], named=True)
        else:
            results.check_model(models["ours"], named=False)


def test_a_model_elsewhere_must_be_named_and_have_the_size(tmp_path: Path) -> None:
    shape = {"n_layers": 2, "d_model": 64, "n_heads": 2, "n_kv_heads": 1, "d_ff": 176, "qk_norm": False}
    lineage = {
        "recipe": {"training": {"model": shape}},
        "assets": {"tokenizer": {"counts": {"entries": 512}}},
    }
    (tmp_path / "lineage.json").write_text(json.dumps(lineage))
    results = Results.read(lm_eval.write(tmp_path, "me/tiny"))
    with pytest.raises(PipelineError, match="of me/tiny, which is not on this machine: give --model"):
        results.check_model(tmp_path, named=False)
    results.check_model(tmp_path, named=True)
    lineage["assets"]["tokenizer"]["counts"]["entries"] = 600
    (tmp_path / "lineage.json").write_text(json.dumps(lineage))
    with pytest.raises(PipelineError, match="another model, me/tiny"):
        results.check_model(tmp_path, named=True)


OTHER_VALUES = [None, 0, -1, 1.5, math.nan, math.inf, -math.inf, "x", "9", "", [], {}, [1], {"a": 1}, True]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or mapping inside a value, with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_one_value_that_is_another_or_gone_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.getbasetemp() / "harness"
    path = lm_eval.write(directory, "somewhere")
    (samples,) = directory.glob("samples_*")
    results, rows = json.loads(path.read_text()), [json.loads(line) for line in samples.open()]
    inside, key = data.draw(st.sampled_from([*places(results), *places(rows)]))
    if data.draw(st.booleans()):
        del inside[key]
    else:
        inside[key] = data.draw(st.sampled_from(OTHER_VALUES))
    path.write_text(json.dumps(results))
    samples.write_text("\n".join(map(json.dumps, rows)))
    try:
        scores = Results.read(path).scores
    except PipelineError as error:
        assert len(str(error).splitlines()) == 1
    else:
        benchmark.table(scores)
        benchmark.verdict(scores)
        assert "NaN" not in json.dumps(scores) and "Infinity" not in json.dumps(scores)


def test_samples_of_no_questions_tell_nothing(tmp_path: Path) -> None:
    path = lm_eval.write(tmp_path, "somewhere")
    (samples,) = tmp_path.glob("samples_*")
    samples.write_text("")
    assert not Results.read(path).answers
