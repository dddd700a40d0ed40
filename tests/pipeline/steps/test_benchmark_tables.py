"""What a table of benchmarks says: which accuracy counts, whether it beats chance, what was left out."""

from typing import Any

import pytest

from pipeline.steps.model.benchmark import above_chance, removed_sets, table, verdict


def scores(low: float, chance: float | None = 0.25, removed: bool | None = True) -> dict[str, Any]:
    interval = {"value": low + 0.04, "low": low, "high": low + 0.08}
    found = None if chance is None else interval
    return {
        "items": 1200,
        "cut": 0,
        "chance": chance,
        "accuracy": found,
        "accuracy_per_character": found and {"value": 0.9, "low": 0.8, "high": 1.0},
        "accuracy_per_byte": found,
        "bits_per_byte": {"value": 1.5, "low": 1.4, "high": 1.6},
        "metric": found and "accuracy",
        "texts_removed": removed,
    }


def test_an_interval_must_lie_above_chance() -> None:
    assert above_chance(scores(0.251)) and not above_chance(scores(0.249))
    assert not above_chance(scores(0.9, chance=None))
    assert verdict({"a": scores(0.24), "b": scores(0.1)}) == (False, "No better than chance yet.")
    assert verdict({"a": scores(0.3), "b": scores(0.1)}) == (
        True,
        "Better than chance on a, not on the other 1.",
    )
    assert verdict({"a": scores(0.3)}) == (True, "Better than chance on a.")
    assert verdict({"a": scores(0, chance=None)}) == (True, "Bits per byte: a 1.500.")


def test_the_accuracy_that_counts_and_a_benchmark_that_was_not_searched_for_are_marked() -> None:
    (row,) = table({"arc_easy": scores(0.27, removed=False)})
    assert row == {
        "benchmark": "arc_easy",
        "items": "1,200",
        "accuracy": "31.0 (27.0-35.0)*",
        "by character": "90.0 (80.0-100.0)",
        "by byte": "31.0 (27.0-35.0)",
        "chance": "25.0",
        "bits per byte": "1.500 (1.400-1.600)",
        "texts removed": "NO",
    }
    (row,) = table({"lambada": scores(0, chance=None, removed=None)})
    assert (row["items"], row["accuracy"], row["chance"]) == ("1,200", "-", "-")
    assert row["texts removed"] == "unknown"
    (row,) = table({"boolq": {**scores(0.27), "cut": 1100}})
    assert row["items"] == "1,200 (1,100 cut)"


@pytest.mark.parametrize("action", ["remove", "report"])
def test_only_texts_that_were_removed_count_as_removed(action: str) -> None:
    sets = [
        {"name": "mine", "source": {"kind": "benchmark", "name": "mine", "path": "mine.jsonl"}},
        {"name": "exam", "source": {"kind": "files", "paths": ["exam.txt"]}},
    ]
    lineage = {"recipe": {"decontamination": {"action": action, "sets": sets}}}
    assert removed_sets(lineage) == ([one["source"] for one in sets] if action == "remove" else [])
    assert removed_sets({"recipe": {}}) == []
