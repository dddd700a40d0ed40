"""The script that installs the locks."""

import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[1] / ".lock" / "install"


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
