"""What `size` says of an amount of text follows from what was measured."""

import json
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.reports.size import RATES, amount, sizes

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "size.json"


def test_the_rates_are_those_that_the_benchmark_measured() -> None:
    measured = json.loads(MEASURED.read_text())["rates"]
    assert {
        stage: {name: getattr(rate, name) for name in measured[stage]} for stage, rate in RATES.items()
    } == measured


def test_the_rates_give_what_was_measured_for_the_text_that_was_measured() -> None:
    for run in json.loads(MEASURED.read_text())["runs"]:
        for size in sizes(run["mb"] * 1e6, run["documents"]):
            measured = run["stages"][size.stage]
            assert size.worker_hours * 3600 == pytest.approx(measured["seconds"], rel=0.2)
            assert size.stored == pytest.approx(measured["bytes"], rel=0.1)


def test_the_command_prints_every_stage_and_the_time_on_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--text", "10TB", "--documents", "3e9", "--workers", "64", "--usd-per-worker-hour", "0.05"]
    assert main(["size", *options]) == 0
    said = capsys.readouterr().out
    assert said.startswith("10.0 TB of text, 3,000,000,000 documents, 78,125 parts of 128 MB")
    assert all(f"\n{stage} " in said for stage in (*RATES, "all"))
    assert "hours on 64 workers" in said
    assert "USD of workers" in said
    assert "memory of the run: 96.0 GB" in said


@pytest.mark.parametrize("text", ["10", "ten TB", "10 foo", "-1GB", "0TB", "1.2.3GB"])
def test_what_is_no_size_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["size", f"--text={text}"])
    assert "is no" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0.0 B"), (999, "999.0 B"), (1e12, "1.0 TB"), (2.5e15, "2.5 PB"), (1e19, "10,000.0 PB")],
)
def test_bytes_have_a_unit(number: float, said: str) -> None:
    assert amount(number) == said
