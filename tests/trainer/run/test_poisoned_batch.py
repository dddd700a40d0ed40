"""A poisoned batch is logged, skipped, or gone back from; the run goes on, the same one when it is
interrupted.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.parallel.processes import train
from tests.trainer.poison import POISONED, STEPS, calm, poison, poison_this_process
from tests.trainer.runs import history, outcome
from trainer.checkpoint import state, store
from trainer.config import RunConfig
from trainer.data.loader import TrainingData
from trainer.run.loop import DONE, run
from trainer.system.errors import TrainerError


def trained(config: RunConfig) -> dict[int, dict[str, Any]]:
    """What the run logged of each step, by its number."""
    return {record["step"]: record for record in history(config.run_dir) if record["kind"] == "train"}


def prepared(settings: dict[str, Any], run_dir: Path, **spikes: Any) -> RunConfig:
    calm(settings)
    settings["training"]["spikes"] = spikes
    return RunConfig.model_validate({**settings, "run_dir": str(run_dir)})


def remove_checkpoints(config: RunConfig, after: int) -> None:
    for checkpoint in store.existing(config.run_dir / "checkpoints"):
        if store.step_of(checkpoint) > after:
            shutil.rmtree(checkpoint)


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
        assert (
            bool(course[POISONED + 1]["update_ratio"])
            == bool(course[POISONED + 1]["lr"])
            == (action == "log")
        )
    assert courses["skip"][POISONED + 2]["lr"] == courses["log"][POISONED + 2]["lr"] > 0


def test_a_rollback_jumps_what_led_to_the_spike_and_nothing_else(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared(settings, tmp_path / "run", action="rollback", rollback_steps=10)
    whole = TrainingData(config.data, config.training, tmp_path)
    poison(monkeypatch, config, POISONED)
    assert run(config) == DONE
    jump = {"at": 128 * 8, "samples": 13 * 8}
    [rollback] = [record for record in history(config.run_dir) if record["kind"] == "rollback"]
    assert (rollback["step"], rollback["from_step"], rollback["jumps"]) == (128, POISONED + 1, [jump])
    assert list(trained(config)) == list(range(1, 161)) and not any(
        record["spike"] for record in trained(config).values()
    )
    last = store.existing(config.run_dir / "checkpoints")[-1]
    told = json.loads((last / "lineage.json").read_text())["training"]
    assert told["jumps"] == [jump]
    taken = whole.order.tokens(128 * 8) + whole.order.tokens(173 * 8) - whole.order.tokens(141 * 8)
    assert [told["corpus_tokens"][name] for name in whole.order.names] == taken.tolist()

    expected = outcome(config.run_dir)
    for interrupted_after in (144, 128):  # with the jump in the checkpoint, and before it was known
        remove_checkpoints(config, interrupted_after)
        assert run(config) == DONE
        assert outcome(config.run_dir) == expected


@pytest.mark.slow
def test_rollbacks_without_end_end_the_run(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared(settings, tmp_path / "run", action="rollback", rollback_steps=10, max_rollbacks=1)
    poison(monkeypatch, config, POISONED, POISONED + 13)
    with pytest.raises(TrainerError, match=r"step 141: a spike after 1 rollbacks .* lower the learning rate"):
        run(config)
    assert [store.step_of(checkpoint) for checkpoint in store.existing(config.run_dir / "checkpoints")][
        -1
    ] == 128


@pytest.mark.slow
def test_processes_that_share_the_samples_go_back_together(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(settings, tmp_path / "one", action="rollback", rollback_steps=10)
    settings["training"]["micro_batch_size"] = 4
    config = RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "one")})
    assert train(settings, tmp_path / "many", 2, poison_this_process, parallel={"dp_shard": 2}) == [
        DONE,
        DONE,
    ]
    poison(monkeypatch, config, POISONED)
    assert run(config) == DONE
    backs, places, losses = [], [], []
    for run_dir in (tmp_path / "one", tmp_path / "many"):
        backs.append(
            [
                (record["step"], record["from_step"], record["jumps"])
                for record in history(run_dir)
                if record["kind"] == "rollback"
            ]
        )
        saved = state.read_state(store.existing(run_dir / "checkpoints")[-1])
        places.append([saved[place] for place in ("step", "samples", "corpus_tokens", "jumps", "rollbacks")])
        losses.append([record["loss"] for record in history(run_dir) if record["kind"] == "train"][-1])
    assert backs[0] == backs[1] != [] and places[0] == places[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_the_first_step_of_a_stage_is_no_spike_however_much_harder_its_text(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(settings, tmp_path / "run", action="rollback", rollback_steps=10)
    settings["training"]["stages"] = [{"name": "easy", "until_tokens": POISONED * 128}, {"name": "hard"}]
    config = RunConfig.model_validate({**settings, "run_dir": str(tmp_path / "run")})
    poison(monkeypatch, config, *range(POISONED, STEPS))
    assert run(config) == DONE
    assert not [
        record for record in history(config.run_dir) if record["kind"] == "rollback" or record.get("spike")
    ]
