"""A recipe with attention sinks: the job ends with a model that says who reads it."""

import json
import subprocess
import sys

import pytest

from pipeline.store import keys
from tests.integration.project import Project


@pytest.mark.slow
def test_a_recipe_with_attention_sinks_ends_in_an_export_that_says_who_reads_it(
    finished: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = finished.copied(tmp_path_factory.mktemp("sinks"))
    project.recipe["training"]["model"]["attention_sinks"] = True
    said = project.make()
    assert "only `python -m trainer` will read the exported model" in said

    exported = project.store.current(keys.EXPORTED_MODEL).path
    assert json.loads((exported / "config.json").read_text())["model_type"] == "groundwork"
    card = (exported / "README.md").read_text()
    assert "library_name: groundwork" in card
    (command,) = [line for line in card.splitlines() if line.startswith("python -m trainer")]
    assert command == "python -m trainer generate --model . --prompt 'Return the'"
    for arguments in (["generate", "--model", ".", "--prompt", "Return the"], ["check", "--model", "."]):
        ended = subprocess.run(
            [sys.executable, "-m", "trainer", *arguments], cwd=exported, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr

    for arguments in (
        ["export", "--format", "gguf", "-o", str(project.directory / "out")],
        ["push", "me/tiny"],
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "pipeline", *arguments],
            env=project.environment(),
            cwd=project.directory,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 2
        *_, last = ended.stderr.strip().splitlines()  # the lines before it say which run is meant
        assert last.startswith("error: ") and "attention sinks" in last and "Traceback" not in ended.stderr
    assert not (project.directory / "out").exists()
