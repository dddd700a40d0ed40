"""Where the user's code is looked for, and what is said when it is not there."""

import sys
from pathlib import Path

import pytest

from pipeline.plugins import loading
from pipeline.plugins.loading import PluginError, load
from tests.pipeline.plugins.code import write


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import nothing_of_this_name",
            r"'broken' cannot be imported: ModuleNotFoundError: .*\(broken.py, line 1\)",
        ),
        ("import os\n\n1 / 0", r"ZeroDivisionError: division by zero \(broken.py, line 3\)"),
        ("def f(:", r"SyntaxError: [^()]*\(broken.py, line 1\)$"),
        (
            "import sys\n\nsys.exit('no model')",
            r"'broken' cannot be imported: SystemExit: no model \(broken.py, line 3\)$",
        ),
    ],
)
def test_a_module_that_does_not_import_names_the_line(code: Path, source: str, said: str) -> None:
    write(code, "broken", source)
    with pytest.raises(PluginError, match=said):
        load("broken:f")


def test_what_a_module_prints_is_not_in_the_results_of_a_command(
    code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may be JSON for another program."""
    write(code, "prints", "print('loading a model')\n\ndef f(batch): ...")
    load("prints:f")
    assert capsys.readouterr() == ("", "loading a model\n")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "my_absent_module.filters:f",
            "there is no module 'my_absent_module': put it beside the recipe, install its package",
        ),
        ("is-prose", "'is-prose': name a function or class in a module as `package.module:name`"),
        ("sys:maxsize", "'sys:maxsize' is of type int: name a function or a class"),
        ("sys:absent", "'sys:absent': sys \\(a part of Python\\) has no 'absent'"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_to_write(code: Path, reference: str, said: str) -> None:
    with pytest.raises(PluginError, match=said):
        load(reference)


def test_code_that_tells_no_parameters_is_to_be_wrapped() -> None:
    with pytest.raises(PluginError, match="does not tell its parameters: wrap it in a Python function"):
        loading.check_arguments(dict, {}, 0, "builtins:dict")


def test_modules_beside_the_recipe_do_not_hide_installed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    loading.make_importable(tmp_path)
    loading.make_importable(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1
    assert sys.path[-1] == str(tmp_path)
