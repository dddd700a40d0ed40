"""The samples of a checkpoint, traced to training text."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from pipeline.assets import checkpoints
from pipeline.assets.used_recipe import OWN
from pipeline.recipe.loading import load_recipe
from pipeline.steps.lineage.checkpoints import read
from pipeline.steps.trace.trace import Searcher
from tests.pipeline.steps.corpora import StoredRun
from tests.pipeline.steps.lineage.conftest import train
from tests.pipeline.steps.lineage.test_trace import Said, _rows, last


def test_the_page_of_a_checkpoint_says_of_each_sample_what_it_has_from_training_text(
    trained: StoredRun, searcher: Searcher, tmp_path: Path
) -> None:
    """`searcher` made the index."""
    saved = read(trained[1] / "checkpoints" / "step-00000032")
    text, _ = searcher.corpora["first"]
    quoted = _rows(text.scrubbed.files("documents")[0])
    held = text.at(500).document
    (whole,) = [one["text"] for one in quoted if one["id"] == held]
    samples = [{"prompt": "a", "text": whole[:400]}, {"prompt": "b", "text": "Zqx jvk wpf, " * 9}]
    shown = checkpoints.samples_shown(checkpoints._traced(saved, samples, OWN)).value
    assert f"first in document {held} of corpus first" in " ".join(shown.split())
    assert "no 16 tokens of it" in shown and max(map(len, shown.splitlines()[-3:])) < 80
    assert f"`python -m pipeline trace --samples {last(trained[1])}`" in shown
    shutil.move(trained[0].root / "token_index", tmp_path)
    try:
        assert checkpoints._traced(saved, samples, OWN) == samples
    finally:
        shutil.move(tmp_path / "token_index", trained[0].root)


def test_the_samples_of_a_checkpoint_are_written_again_and_traced(trained: StoredRun, said: Said) -> None:
    config = trained[1] / "config.yaml"
    before = config.read_text()
    config.write_text(before.replace("prompts: []", "prompts: [Return the]"))
    try:
        found = json.loads(said("trace", "--samples", last(trained[1]), "--min-tokens", "3", "--json"))
    finally:
        config.write_text(before)
    (sample,) = found["items"]
    assert (
        sample["text"].startswith("Return the")
        and sample["tokens"] >= 3
        and sample["longest"]["text"] in sample["text"]
    )


@pytest.mark.slow
def test_samples_are_the_texts_that_the_run_wrote_at_that_step(
    trained: StoredRun, searcher: Searcher, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    """`searcher` made the index."""
    recipe = load_recipe(trained[0].root.parent / "recipe.yaml")
    changed = recipe.model_dump(mode="json", by_alias=True)
    changed["training"] |= {
        "averaging": {"half_life_tokens": 2048},
        "checkpoint": {"every_tokens": 8192},
        "samples": {"prompts": ["Return the", "--class \n", "é "], "max_new_tokens": 60, "temperature": 0.5},
    }
    caplog.set_level(logging.INFO, logger="trainer")
    run = train(trained[0], type(recipe).model_validate(changed))
    lines = [record.getMessage() for record in caplog.records]
    try:
        for step in (16, 32):
            name = f"{run.name[:8]}-{step:08d}"
            found = json.loads(said("trace", "--samples", name, "--min-tokens", "3", "--json"))
            logged = [line.removeprefix(f"step {step}: ") for line in lines]
            written = [one["text"].replace("\n", " / ") for one in found["items"]]
            assert [one for one in logged if one in written] == written
            assert len(set(written)) == 3
    finally:
        shutil.rmtree(run)
