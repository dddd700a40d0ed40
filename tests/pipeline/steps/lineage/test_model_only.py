"""A checkpoint that has lost its optimizer's state, as the commands see it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.steps import verification
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import StoredRun
from trainer.checkpoint import publish, retention


@pytest.fixture
def saved(trained: StoredRun, tmp_path: Path) -> list[Path]:
    """The checkpoints of a copy of the run."""
    run = trained[1]
    shutil.copytree(run, tmp_path / "store/runs" / run.name)
    return publish.existing(tmp_path / "store/runs" / run.name / "checkpoints")


def test_lineage_says_that_training_cannot_resume_from_it(saved: list[Path], ask: Any) -> None:
    before, last = saved
    assert "cannot resume" not in ask(str(before))
    retention.drop_optimizers(last, of_newest=False)
    assert "training cannot resume from here" in ask(str(before)).replace("\n" + " " * 13, " ")
    assert [json.loads(ask("--json", str(one)))["model_only"] for one in saved] == [True, False]


def test_a_run_is_shown_as_its_newest_checkpoint(
    saved: list[Path], ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    run = saved[0].parents[1]
    for named in (str(run), run.name, run.name[:8]):
        assert json.loads(ask("--json", named))["path"] == str(saved[-1])


@pytest.mark.parametrize("settings", ["{", "", "training: [", "\0"])
def test_verify_finds_settings_of_a_run_that_cannot_be_read(
    saved: list[Path], tmp_path: Path, settings: str
) -> None:
    config, store = saved[0].parents[1] / "config.yaml", Store(tmp_path / "store")
    assert not verification.verify(store, saved).damaged
    config.write_text(settings)
    (found,) = verification.verify(store, saved).damaged
    assert [one.path for one in found.damage] == [config] and len(found.made_from_it) == 2


def test_verify_finds_it_sound_also_if_it_loses_its_optimizer_meanwhile(
    saved: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect = verification.inspect

    def training_goes_on(*arguments: Any) -> Any:
        retention.drop_optimizers(saved[-1], of_newest=False)
        return inspect(*arguments)

    monkeypatch.setattr(verification, "inspect", training_goes_on)
    store = Store(tmp_path / "store")
    for _ in range(2):
        assert not verification.verify(store, saved, deep=True).damaged
    assert [bool(publish.optimizer_files(one)) for one in saved] == [False, True]
    (saved[0] / "hf/config.json").unlink()
    assert verification.verify(store, saved).damaged
