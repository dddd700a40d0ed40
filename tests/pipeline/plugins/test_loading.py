"""Where the user's code is looked for, and what is said when it is not there."""

import sys
from pathlib import Path

import pytest

from pipeline.plugins import loading
from pipeline.plugins.loading import FILTERS, PluginError, load
from tests.pipeline.plugins.code import write


def installed(directory: Path, group: str, name: str, value: str) -> None:
    """What `pip install` writes for a package that declares an entry point."""
    metadata = directory / "wordlists-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wordlists\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


def test_a_package_ships_a_filter_through_an_entry_point(code: Path) -> None:
    write(code, "wordlists.filters", "def polite(documents):\n    return [True] * documents.num_rows\n")
    installed(code, FILTERS, "polite-words", "wordlists.filters:polite")
    assert load(FILTERS, "polite-words").__name__ == "polite"


def test_an_unknown_entry_point_lists_those_that_there_are(code: Path) -> None:
    installed(code, FILTERS, "polite-words", "wordlists.filters:polite")
    with pytest.raises(PluginError, match=r"'polite' is not an entry point.*which has: polite-words\."):
        load(FILTERS, "polite")


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
        load(FILTERS, "broken:f")


def test_a_module_that_is_not_there_says_where_to_put_it(code: Path) -> None:
    with pytest.raises(
        PluginError,
        match="there is no module 'my_absent_module': put it beside the recipe, install its package",
    ):
        load(FILTERS, "my_absent_module.filters:f")


def test_modules_beside_the_recipe_do_not_hide_installed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    loading.make_importable(tmp_path)
    loading.make_importable(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1
    assert sys.path[-1] == str(tmp_path)
