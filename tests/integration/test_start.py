"""`groundwork FOLDER --hours H` on a folder of 200 KB: a model at the end of one command."""

import json
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from pipeline.recipe.loading import load_recipe
from tests.integration.project import PATIENCE, ROOT, Project

pytestmark = pytest.mark.slow


def test_a_folder_and_a_deadline_make_a_model_that_answers(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "all.txt").write_text("\n\n".join(topics.values())[:200_000])
    (folder / "small.csv").write_text(
        "\n".join(["a;b", *(f"{n};{text[:900]!r}" for n, text in enumerate(topics.values()))][:40])
    )
    said = [
        {
            "messages": [
                {"role": "user", "content": f"What is {name}?"},
                {"role": "assistant", "content": text[:300]},
            ]
        }
        for name, text in sorted(topics.items())
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    settings = Project(tmp_path, {"name": "unused"}).environment()
    del settings["GROUNDWORK_RECIPE"]
    command = [sys.executable, "-m", "pipeline", "start", str(folder), "--hours", "0.02", "--chat"]
    done = subprocess.run(
        command, env=settings, cwd=ROOT, text=True, capture_output=True, timeout=240 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert " bits per byte" in done.stdout and "Talk to it:" in done.stdout
    path = tmp_path / "notes.yaml"
    assert f"The recipe: {path}" in done.stdout
    recipe = load_recipe(path)
    assert recipe.corpus_names == ["notes", "notes_2"]
    store = tmp_path / "home" / "store"
    # of the pretraining, and of `sft`
    assert len(list((store / "exported_model").glob("*/model.safetensors"))) == 2
