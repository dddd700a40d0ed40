"""`groundwork FOLDER --hours H` on a folder of 200 KB: a model at the end of one command."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from pipeline.recipe.loading import load_recipe
from tests.integration.project import PATIENCE, ROOT, Project
from tests.rows import jsonl

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
    jsonl(folder / "chats.jsonl", *said)
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
    assert recipe.corpus_names == ["notes", "notes_docs"]
    store = tmp_path / "home" / "store"
    # of the pretraining, and of `sft`
    assert len(list((store / "exported_model").glob("*/model.safetensors"))) == 2


def test_a_start_ends_at_its_deadline_although_the_machine_becomes_slower(tmp_path: Path) -> None:
    """A busy process on each core begins when the length has been chosen. It may take a quarter longer."""
    folder, minutes = tmp_path / "notes", 3
    folder.mkdir()
    for module in Path(os.__file__).parent.glob("*.py"):  # so much text that the time ends the training
        shutil.copy(module, folder)
    settings = Project(tmp_path, {"name": "unused"}).environment()
    del settings["GROUNDWORK_RECIPE"]
    command = [sys.executable, "-m", "pipeline", "start", str(folder), "--hours", str(minutes / 60)]
    began, lines = time.monotonic(), []
    with ExitStack() as stack:
        start = stack.enter_context(
            subprocess.Popen(command, env=settings, cwd=ROOT, text=True, stdout=subprocess.PIPE)
        )
        assert start.stdout is not None
        for line in start.stdout:
            lines.append(line)
            if line.startswith("The recipe:"):
                for _ in range(os.cpu_count() or 1):
                    busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                    stack.callback(busy.kill)
    took, said = (time.monotonic() - began) / 60, "".join(lines)
    assert start.returncode == 0
    changed = re.search(r"The training is shortened from ([\d,]+) .*, to ([\d,]+) tokens", said)
    assert changed
    planned, tokens = (int(number.replace(",", "")) for number in changed.groups())
    recipe = load_recipe(tmp_path / "notes.yaml")
    assert tokens < planned
    assert recipe.training.max_tokens == tokens
    assert f"shortened from {planned:,}" in (tmp_path / "notes.yaml").read_text()
    (model,) = (tmp_path / "home" / "store" / "pretrained_model").glob("*/manifest.json")
    counts = json.loads(model.read_text())["parts"][0]["counts"]
    assert counts["tokens"] == tokens
    assert counts["reused_tokens"] > 0  # those that were trained before the length changed
    # A machine that others load more than this test does is no measure.
    if os.getloadavg()[2] < 4 * (os.cpu_count() or 1):
        assert took < 1.25 * minutes
