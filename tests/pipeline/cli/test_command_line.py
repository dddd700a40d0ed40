"""Whatever stands on the command line or in the environment, a command ends in its status or one sentence."""

import os
import shlex
import signal
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from pipeline.cli import COMMANDS, main, module
from pipeline.cli.inspect import VIEWS
from pipeline.cli.recipe_option import subparsers
from trainer.system.paths import STORE_VARIABLE

SECONDS = 60
PATHS = ["good.jsonl", "bytes.jsonl", "empty.csv", "folder", "folder/*", "good.parquet", "recipe.yaml", "out"]
VALUES = [
    *("", " ", "-", "--", "=", "a=", "*", "nan", "inf", "-1", "0", "1", "0.5", "1e400", "9" * 30, "x" * 5000),
    *("/", "/dev/null", "/proc/self/mem", "~nobody/x", "..", "nowhere.jsonl", "file:///x", "s3://", "hf://a"),
    *("default", "docs", "fineweb", "gguf", "parquet", "email", "en", "é", "\x1b[2J", "\udc80", "[", "{}"),
]
VARIABLES = {
    "GROUNDWORK_STORE": ["store", "", "good.jsonl", "/dev/null", "x" * 5000, "nowhere/deep"],
    "GROUNDWORK_RECIPE": ["", "recipe.yaml", "good.jsonl", "folder", "nowhere", "default", "x" * 5000],
    "DAGSTER_HOME": ["home", "", "good.jsonl", "nowhere"],
    "HF_TOKEN": ["", "x", "é"],
    "COLUMNS": ["", "0", "-1", "9" * 30],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "good.jsonl").write_text('{"id": "1", "text": "Some text of a few words."}\n' * 3)
    (tmp_path / "bytes.jsonl").write_bytes(bytes(range(256)))
    (tmp_path / "good.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "recipe.yaml").write_text("[1, 2]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path


def options(command: str, subcommand: str | None, required: bool) -> list[tuple[str, bool]]:
    """The options of a command, and whether each takes a value."""
    parser = ArgumentParser(add_help=False)
    module(command).add_arguments(parser)
    parser = subparsers(parser)[subcommand] if subcommand else parser
    return [
        (action.option_strings[-1], action.nargs != 0)
        for action in parser._actions
        if action.option_strings and action.required == required
    ]


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from([*COMMANDS]))
    value = st.sampled_from([*PATHS, *VALUES]) | st.text(
        st.characters(codec="utf-8", exclude_characters="\0"), max_size=8
    )
    subcommand = draw(st.sampled_from([*VIEWS])) if command == "inspect" else None
    words = draw(st.lists(st.sampled_from(PATHS) | value, min_size=1, max_size=2))
    line = [command, *([subcommand] if subcommand else []), *words]
    chosen = options(command, subcommand, required=True)
    if others := options(command, subcommand, required=False):
        chosen += draw(st.lists(st.sampled_from(others), max_size=3))
    for option, takes_value in chosen:
        line += [option, draw(value)] if takes_value else [option]
    return [*line, "--plan"] if command == "start" else line  # which would train


def too_long(*_: object) -> None:
    raise AssertionError(f"the command took more than {SECONDS} s")


def test_an_option_whose_value_is_empty_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As that of a variable of the shell that is not set: the command would be about another model."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    for line, said in (
        (["summary", "--model", ""], "no model is there"),
        (["summary", "--variant", ""], "no variant is named ''"),
        (["inspect", "counts", "--variant", ""], "no variant is named ''"),
        (["lineage", ""], "'' is not a checkpoint"),
    ):
        assert main(line) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("decide base base", "base is compared with itself"),
        ("export --format gguf -o out --split train", "--format gguf exports a model"),
        ("forget x --reason ' '", "--reason: is empty"),
        ("inspect-shards --documents -1", "--documents -1: must be at least 0"),
        ("lineage x --version 12", "--version: name the corpus"),
        ("lineage x --losses", "--losses: name the step"),
        ("reproduce", "give either CHECKPOINT or --variant"),
        ("reproduce x --variant y", "give either CHECKPOINT or --variant"),
        ("push someone/texts --data out --model m", "leave out --model and --variant"),
        ("restore science", "nothing is cut out of this corpus"),
        ("start / --hours 1", "is the whole machine"),
        ("start . --hours 0", "give a time above 0 and below 10,000"),
        ("start . --hours 20000", "give a time above 0 and below 10,000"),
        ("start . --hours 1 --languages en,englsh", "--languages: unknown 'englsh'"),
        ("start . --hours 1 --languages fi,dn", "--languages: unknown 'dn'"),
        ("variants run --at-once 0", "--at-once 0: must be at least 1"),
        ("variants run --job sft --recipe tiny", "--job sft: the recipe has no post_training.sft"),
        ("decide --section dpo --recipe tiny", "--section dpo: the recipe has no post_training.dpo"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_options_that_do_not_fit_are_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert main(shlex.split(line)) == 2
    assert said in capsys.readouterr().err


def test_the_mixture_of_a_variant_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    assert main(["mixture", "--variant", "unheard-of"]) == 2
    assert "unheard-of" in capsys.readouterr().err


@pytest.mark.slow
def test_a_command_line_ends_in_its_status_or_in_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @bounded(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        lines(), st.fixed_dictionaries({name: st.sampled_from(known) for name, known in VARIABLES.items()})
    )
    def one(line: list[str], variables: dict[str, str]) -> None:
        os.environ |= variables
        signal.alarm(SECONDS)
        try:
            status: Any = main(line)
        except SystemExit as error:  # argparse's
            status = error.code
        finally:
            signal.alarm(0)
        assert status in (0, 2)

    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    before = signal.signal(signal.SIGALRM, too_long)
    try:
        one()
    finally:
        signal.signal(signal.SIGALRM, before)
