"""docs/start.md: a folder and a deadline. The plan first, then the model, then the same once more."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.integration.project import PATIENCE, Project, python_topics

pytestmark = pytest.mark.slow


def test_the_plan_is_the_recipe_the_model_is_what_is_said_and_a_second_start_makes_nothing_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for row in python_topics()[:20]:
        (folder / f"{row['id']}.txt").write_text(row["text"])
    settings = Project(tmp_path, {"name": "unused"}).environment()
    del settings["GROUNDWORK_RECIPE"]
    recipe, store = tmp_path / "notes.yaml", tmp_path / "home/store"

    def start(*options: str) -> tuple[str, float]:
        groundwork = Path(sys.executable).with_name("groundwork")
        began = time.monotonic()
        # The text ends it, and the two sizes next to the smallest are tried in the rest of the time.
        command = [str(groundwork), "notes", "--hours", "0.2", *options]
        done = subprocess.run(
            command, env=settings, cwd=tmp_path, text=True, capture_output=True, timeout=720 * PATIENCE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, time.monotonic() - began

    said, _ = start("--plan")
    planned = yaml.safe_load(recipe.read_text())
    tokens = re.search(r"tokens +([\d,]+) ", said)[1].replace(",", "")
    assert planned["training"]["max_tokens"] == int(tokens)
    for line in ("notes", "dagster job execute -j pretrain"):
        assert line in said
    assert not list(store.glob("runs/*"))

    said, took = start()
    assert yaml.safe_load(recipe.read_text())["corpora"] == planned["corpora"]
    exported = Path(re.search(r"^Model +(.*)$", said, re.M)[1])
    trained = int(re.search(r"^Training +([\d,]+) tokens", said, re.M)[1].replace(",", ""))
    assert trained == yaml.safe_load(recipe.read_text())["training"]["max_tokens"]
    minutes = float(re.search(r"Done in ([\d.]+) of 12.0 minutes", said)[1])
    assert minutes == pytest.approx(took / 60, abs=0.2)
    model = AutoModelForCausalLM.from_pretrained(exported)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    parameters = re.search(r"# ([\d.]+) M parameters: ", recipe.read_text())[1]
    assert f"{sum(one.numel() for one in model.parameters()) / 1e6:.1f}" == parameters
    asked = tokenizer("Return the", return_tensors="pt")
    assert model.generate(**asked, max_new_tokens=8).shape[1] > asked["input_ids"].shape[1]
    assert torch.isfinite(model(**asked).logits).all()

    (scores,) = re.findall(r"bits per byte are (.*)\.$", said, re.M)
    assert scores in recipe.read_text() and scores.count(" layers of width ") == 3
    best = re.match(r"([\d.]+) with", scores)[1]
    assert re.search(rf"^Validation +{best} bits per byte on ", said, re.M)

    made = {path: path.stat().st_mtime_ns for path in store.rglob("manifest.json")}
    again, took_again = start()
    assert Path(re.search(r"^Model +(.*)$", again, re.M)[1]) == exported
    assert {path: path.stat().st_mtime_ns for path in store.rglob("manifest.json")} == made
    assert took_again < took
