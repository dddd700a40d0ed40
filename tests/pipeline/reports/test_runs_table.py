"""The table of variants: one row each, whatever state it is in."""

from dataclasses import replace

from pipeline.reports.comparison import Curve, Outcome
from pipeline.reports.runs_table import OTHER_TEXT, draw, inline, lines, rows

CURVE = Curve([1000, 2000], [1.0, 2.0], [4.0, 3.0], [2000], [3.1])
SCORES = {"metric": "accuracy", "accuracy": {"value": 0.4, "low": 0.3, "high": 0.5}}
DONE = Outcome("base", "", 1.0, 2000, 3.1, 1.5, "A", {"piqa": SCORES}, 120.0, 0.25, CURVE)
BEGUN = Outcome("fast", "training.optimizer.lr 0.01", 0.5, 1000, 3.5, None, "A", curve=CURVE)
PLANNED = Outcome("strict", "quality gopher")
OTHER = Outcome("strict", "quality gopher", 1.0, 2000, 2.9, 1.4, "B", {"piqa": SCORES}, 130.0, 0.3, CURVE)


def test_finished_begun_and_planned_variants_stand_in_one_table() -> None:
    table = rows([DONE, BEGUN, PLANNED])
    assert [row["done"] for row in table] == ["100%", "50%", "0%"]
    assert [row["loss"] for row in table] == ["3.1000", "3.5000", "-"]
    assert [row["piqa"] for row in table] == ["40.0 (30.0-50.0)", "-", "-"]
    assert [row["USD"] for row in table] == ["0.25", "-", "-"]


def test_losses_on_other_held_out_text_are_marked() -> None:
    assert "held-out text" not in rows([DONE, BEGUN])[0]
    assert [row["held-out text"] for row in rows([DONE, OTHER])] == ["A", "B"]
    assert list(lines([DONE, OTHER], 200))[-1] == OTHER_TEXT
    assert OTHER_TEXT not in lines([DONE, BEGUN], 200)


def test_the_table_fits_a_narrow_terminal_without_its_benchmarks() -> None:
    wide, narrow = (list(lines([DONE, OTHER], columns)) for columns in (200, 90))
    assert "piqa" in wide[0] and "piqa" not in narrow[0]
    assert [line for line in narrow if line.split() == ["run", "piqa"]]


def test_seeds_are_one_row_with_the_mean_of_those_that_are_done() -> None:
    other, nan = replace(DONE, loss=3.3, bits_per_byte=1.7), replace(DONE, loss=float("nan"))
    (row,) = rows([replace(DONE, seeds=(DONE, other, BEGUN))])
    assert (row["seeds"], row["loss"], row["bits per byte"]) == (
        "2 of 3",
        "3.2000 ± 0.1414",
        "1.6000 ± 0.1414",
    )
    assert row["piqa"] == "40.0000 ± 0.0000"
    (row,) = rows([replace(BEGUN, seeds=(BEGUN, PLANNED))])
    assert (row["seeds"], row["loss"]) == ("0 of 2", "3.5000")
    (row,) = rows([replace(DONE, seeds=(nan, other))])
    assert row["loss"] == "3.3000"


def test_imported_scores_of_seeds_need_not_have_the_same_figures() -> None:
    other = {"metric": "accuracy_per_character", "accuracy": None, "accuracy_per_character": {"value": 0.9}}
    (row,) = rows([replace(DONE, seeds=(DONE, replace(DONE, benchmarks={"piqa": other})))])
    assert row["piqa"] == "40.0000"


def test_curves_are_drawn_also_before_any_training() -> None:
    for outcomes in ([DONE, BEGUN, PLANNED], [PLANNED]):
        assert draw(outcomes).startswith(b"\x89PNG")


def test_tokens_and_seeds_are_in_sight_beside_the_score() -> None:
    other = replace(DONE, name="base.2", tokens=8000, seed=2)
    ((_, shown),) = inline([replace(DONE, seed=1), other], "/page?")
    heading, _, *found = shown.splitlines()
    assert heading == "| run | bits per byte | tokens | seed | done | hours |"
    assert [line.split(" | ")[2:4] for line in found] == [["2,000", "1"], ["8,000", "2"]]
    (row,) = rows([replace(DONE, seeds=(replace(DONE, seed=1), other))])
    assert row["seed"] == "1, 2"
