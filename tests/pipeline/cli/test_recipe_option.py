"""`--recipe` names the recipe of one command, whatever GROUNDWORK_RECIPE says; and where the store is."""

from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.recipe.recipe import RECIPES


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe with a variant `fast`, which is not the one in use."""
    recipe = yaml.safe_load((RECIPES / "tiny.yaml").read_text())
    recipe |= {"name": "mine", "variants": {"fast": {"training": {"seed": 2}}}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setenv("GROUNDWORK_RECIPE", "default")
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    return tmp_path / "mine.yaml"


def test_a_command_takes_the_named_recipe_and_the_next_one_does_not(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["variants", "--recipe", str(mine)]) == 0
    assert "fast" in capsys.readouterr().out
    assert main(["variants"]) == 2
    assert "default.yaml: the recipe has no `variants`" in capsys.readouterr().err


def test_a_long_name_of_a_variant_stands_apart_from_its_settings(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = yaml.safe_load(mine.read_text())
    recipe |= {"seeds": 3, "variants": {"a_long_name_indeed": {"quality": "gopher"}}}
    mine.write_text(yaml.safe_dump(recipe))
    assert main(["variants", "--recipe", str(mine)]) == 0
    _, base, long = capsys.readouterr().out.splitlines()
    assert long == "a_long_name_indeed (3 seeds)  quality gopher"
    assert base.index("the recipe") == long.index("quality")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["variants"], ""),
        (
            ["inspect", "documents", "near"],
            "raw has not been made yet: materialize it (for example with the job",
        ),
        (["trace", "--", "-a text"], "raw has not been made yet"),
        (["corpora"], "raw has not been made yet"),
        (["recipe"], "unrecognized arguments: --recipe"),
    ],
)
def test_the_recipe_may_stand_before_the_command(
    mine: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["--recipe", str(mine), *arguments])
    except SystemExit as ended:
        status = ended.code
    out, error = capsys.readouterr()
    assert (said in error and status == 2) if said else ("fast" in out and status == 0)


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "counts"], ["inspect", "against", "fast"]])
def test_a_command_with_subcommands_takes_it_too(
    mine: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (corpus,) = (one["name"] for one in yaml.safe_load(mine.read_text())["corpora"])
    assert main([*arguments, "--recipe", str(mine)]) == 2
    assert f"corpora/{corpus}/raw has not been made" in capsys.readouterr().err


def test_a_shipped_recipe_has_a_name_and_another_is_not_found(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["variants", "--recipe", "tiny"]) == 2
    assert "tiny.yaml: the recipe has no `variants`" in capsys.readouterr().err
    assert main(["variants", "--recipe", "nowhere.yaml"]) == 2
    assert "no such recipe" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["summary"], ["disk"], ["gc"], ["forget", "a", "--reason", "b"]])
@pytest.mark.parametrize(("home", "why"), [("rel/home", "no full path"), ("/nowhere/home", "no such folder")])
def test_a_home_that_dagster_would_refuse_is_told_in_place_of_an_empty_store(
    command: list[str],
    home: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("GROUNDWORK_STORE", raising=False)
    monkeypatch.setenv("GROUNDWORK_RECIPE", "tiny")
    monkeypatch.setenv("DAGSTER_HOME", home)
    assert main(command) == 2
    assert f"error: DAGSTER_HOME {home}: " in (said := capsys.readouterr().err)
    assert why in said
