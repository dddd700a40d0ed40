"""The table of training runs: what each came to, and in which settings the runs of a recipe differ."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.steps.training import runs
from pipeline.store.versions import Store


def write(store: Store, name: str, seed: int, recipe: str = "mine", steps: int = 4, **training: Any) -> Path:
    """A run of `steps` steps of 512 tokens, a second each, of the four that are planned."""
    run = store.root / "runs" / name
    run.mkdir(parents=True)
    settings = {"max_tokens": 2048, "seed": seed, "optimizer": {"lr": 0.003}, **training}
    lineage = {"recipe": {"name": recipe, "dedup": {"threshold": 0.8}, "engine": {"workers": seed}}}
    (run / "config.yaml").write_text(yaml.safe_dump({"training": settings, "lineage": lineage}))
    records: list[dict[str, Any]] = [
        {"kind": "train", "tokens": 512 * step, "loss": 6.0, "tokens_per_second": 512.0}
        for step in range(1, steps + 1)
    ]
    if steps == 4:
        records.append({"kind": "evaluation", "tokens": 2048, "loss": 5.0, "bits_per_byte": 3.5})
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_each_run_shows_its_scores_and_in_what_it_differs_from_the_others_of_its_recipe(store: Store) -> None:
    saved = write(store, "aaaaaaaa11111111", 1) / "checkpoints" / "step-00000004"
    saved.mkdir(parents=True)
    (saved / "manifest.json").touch()
    write(store, "bbbbbbbb22222222", 2, steps=2, optimizer={"lr": 0.01})
    write(store, "cccccccc33333333", 3, recipe="another")
    found = {run.name: run for run in runs.training_runs(store)}
    assert [found["aaaaaaaa"].tokens, found["bbbbbbbb"].tokens] == [2048, 1024]
    assert (found["aaaaaaaa"].validation_loss, found["aaaaaaaa"].bits_per_byte) == (5.0, 3.5)
    assert found["bbbbbbbb"].validation_loss is None and found["bbbbbbbb"].planned_tokens == 2048
    assert found["aaaaaaaa"].hours == pytest.approx(4 / 3600) and found["aaaaaaaa"].tokens_per_second == 512
    assert runs.differences(list(found.values())) == {
        "aaaaaaaa": "training.optimizer.lr 0.003, training.seed 1",
        "bbbbbbbb": "training.optimizer.lr 0.01, training.seed 2",
        "cccccccc": "",
    }
    assert runs.checkpoints_on_disk(store) == {"aaaaaaaa": 1}


def test_a_run_that_has_not_begun_is_in_the_table(store: Store) -> None:
    write(store, "aaaaaaaa11111111", 1, steps=0)
    (run,) = runs.training_runs(store)
    assert run.tokens == 0 and run.tokens_per_second == 0 and run.bits_per_byte is None
