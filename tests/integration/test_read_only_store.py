"""A store on a file system that may only be read, such as a snapshot or somebody else's share."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.project import Project

pytestmark = pytest.mark.slow


def test_a_run_that_finds_everything_made_succeeds_and_any_other_is_refused_in_a_sentence(
    finished: Project, tmp_path: Path
) -> None:
    project = finished.copied(tmp_path)
    project.make()  # what is recorded of files by their place is of this place
    store = project.store.root
    bound = subprocess.run(["mount", "--bind", store, store], capture_output=True, text=True, check=False)
    if bound.returncode:
        pytest.skip(f"no file system can be mounted: {bound.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", store], check=True)
        project.make()
        assert project.content() == finished.content()
        project.recipe["quality"] = "gopher"
        status, said = project.run()
        assert status and "Traceback" not in said
        assert f"{store}/" in said and "cannot be written (Read-only file system)" in said
    finally:
        subprocess.run(["umount", "-l", store], check=True)
