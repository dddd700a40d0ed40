"""The script that installs the locks."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTALL = ROOT / ".lock" / "install"
AGAIN = "rm -r .venv, and run make again"


@pytest.mark.parametrize("name", ["a {y}", "a}", "b$c"])
def test_a_folder_in_which_nothing_can_be_installed_is_told_before_anything_is_downloaded(
    tmp_path: Path, name: str
) -> None:
    script = tmp_path / name / ".lock" / "install"
    script.parent.mkdir(parents=True)
    shutil.copy(INSTALL, script)
    ended = subprocess.run(["sh", script, ".lock/runtime.txt"], capture_output=True, text=True, check=False)
    told = "setuptools reads { } and $NAME in a path as variables: rename the folder"
    assert (ended.returncode, ended.stderr) == (2, f"error: {script.parents[1]}: {told}\n")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A checkout with an environment that is up to date."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / ".lock", tmp_path / ".lock")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / ".runtime").touch()
    return tmp_path


def set_up(checkout: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        ["make", *options, "setup"], cwd=checkout, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.partition("\n")[0]


def test_another_python_is_not_taken_silently_for_that_of_the_environment(installed: Path) -> None:
    other = installed / "python9"
    other.write_text("#!/bin/sh\necho Python 9.9.9\n")
    other.chmod(0o755)
    told = f"error: .venv has Python {platform.python_version()}, not Python 9.9.9: {AGAIN}"
    assert set_up(installed, f"PYTHON={other}") == (2, told)
    assert set_up(installed, f"PYTHON={sys.executable}") == (0, "")
    assert set_up(installed) == (0, "")


def test_an_environment_whose_python_an_upgrade_removed_is_told(installed: Path) -> None:
    python = installed / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(installed / "removed")
    assert set_up(installed) == (2, f"error: the Python of .venv is gone: {AGAIN}")
