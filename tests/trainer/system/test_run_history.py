"""Names of runs and checkpoints, and what lies beside them under the same name."""

from pathlib import Path

import pytest

from pipeline.store.store import Store
from pipeline.store.training_runs import run_named
from trainer.system import run_history

CHECKPOINT = "30995665-00000032"


def test_a_folder_that_reproduce_wrote_does_not_hide_the_checkpoint_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "store" / "runs" / "309956651c5eb4d9"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("name: mine")
    monkeypatch.chdir(tmp_path)
    written = tmp_path / CHECKPOINT
    written.mkdir()
    (written / "recipe.yaml").write_text("name: mine")
    assert run_named(Store(tmp_path / "store"), CHECKPOINT).path == run
    assert run_history.is_name(CHECKPOINT)
    (written / "config.json").write_text("{}")  # a model is meant by its path
    assert not run_history.is_name(CHECKPOINT)
