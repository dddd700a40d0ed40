"""A poisoned batch is logged or skipped, and the run continues."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.parallel.processes import train
from tests.trainer.poison import POISONED, STEPS, calm, poison, poison_this_process
from tests.trainer.runs import history
from trainer.checkpoint import publish, state
from trainer.config import RunConfig
from trainer.run.loop import DONE, run


def trained(config: RunConfig) -> dict[int, dict[str, Any]]:
    """What the run logged of each step, by its number."""
    return {record["step"]: record for record in history(config.run_dir) if record["kind"] == "train"}


def prepared(settings: dict[str, Any], run_dir: Path, **spikes: Any) -> RunConfig:
    calm(settings)
    settings["training"]["spikes"] = spikes
    return RunConfig.model_validate({**settings, "run_dir": str(run_dir)})


@pytest.mark.slow
def test_logged_it_changes_the_weights_and_skipped_it_does_not(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    courses = {}
    for action in ("log", "skip"):
        config = prepared(settings, tmp_path / action, action=action)
        if not courses:
            poison(monkeypatch, config, POISONED)
        assert run(config) == DONE
        courses[action] = trained(config)
    for action, course in courses.items():
        assert [step for step, record in course.items() if record["spike"]] == [POISONED + 1]
        assert course[POISONED + 1]["skipped"] == (action == "skip")
        before, after = (course[POISONED + number]["param_norm"] for number in (0, 1))
        assert (before != after) == bool(course[POISONED + 1]["lr"]) == (action == "log")
    assert courses["skip"][POISONED + 2]["lr"] == courses["log"][POISONED + 2]["lr"] > 0


@pytest.mark.slow
def test_processes_that_share_the_samples_skip_the_same_step(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(settings, tmp_path / "one", action="skip")
    settings["training"]["micro_batch_size"] = 4
    config = RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "one")})
    split = {"parallel": {"dp_shard": 2}}
    assert train(settings, tmp_path / "many", 2, poison_this_process, **split) == [DONE] * 2
    poison(monkeypatch, config, POISONED)
    assert run(config) == DONE
    skipped, places, losses = [], [], []
    for run_dir in (tmp_path / "one", tmp_path / "many"):
        steps = [record for record in history(run_dir) if record["kind"] == "train"]
        skipped.append([record["step"] for record in steps if record["spike"] and record["skipped"]])
        saved = state.read_state(publish.existing(run_dir / "checkpoints")[-1])
        places.append([saved[place] for place in ("step", "samples", "corpus_tokens")])
        losses.append(steps[-1]["loss"])
    assert skipped[0] == skipped[1] == [POISONED + 1] and places[0] == places[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_the_first_step_of_a_stage_is_no_spike_however_much_harder_its_text(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(settings, tmp_path / "run", action="skip")
    settings["training"]["stages"] = [{"name": "easy", "until_tokens": POISONED * 128}, {"name": "hard"}]
    config = RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "run")})
    poison(monkeypatch, config, *range(POISONED, STEPS))
    assert run(config) == DONE
    assert not [record for record in history(config.run_dir) if record.get("spike")]
