"""Which checkpoints keep the optimizer's state, and that no kill takes it from a training that needs it."""

import copy
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.parallel.processes import sending, train
from tests.trainer.runs import history, outcome
from tests.trainer.steps import after_each_step
from tests.trainer.trained import trained
from trainer.checkpoint import publish, retention
from trainer.config import RunConfig, run_identity
from trainer.run.loop import DONE, run
from trainer.run.session import Session
from trainer.system.errors import RESUMABLE, TrainerError
from trainer.system.run_history import checkpoint_sha256, model_version


@pytest.fixture
def keeping(settings: dict[str, Any]) -> Callable[..., RunConfig]:
    """The run of 12 steps and three checkpoints, all of which stay."""

    def of(kept: str, **training: Any) -> RunConfig:
        changed = copy.deepcopy(settings)
        changed["training"] |= training
        changed["training"]["checkpoint"] |= {"keep_last": 3, "optimizer": kept}
        return RunConfig.model_validate(changed)

    return of


def with_optimizer(config: RunConfig) -> list[int]:
    """The steps that have the optimizer's state. All checkpoints must be valid, and hold no file that their
    manifest does not list.
    """
    found = []
    for checkpoint in publish.existing(config.run_dir / "checkpoints"):
        publish.verify(checkpoint)
        files = publish.optimizer_files(checkpoint)
        assert files == sorted(checkpoint.glob("optimizer*"))
        found += [publish.step_of(checkpoint)] if files else []
    return found


def asking_for(config: RunConfig, optimizer: str) -> RunConfig:
    checkpoint = config.training.checkpoint.model_copy(update={"optimizer": optimizer})
    return config.with_training(checkpoint=checkpoint)


@pytest.mark.parametrize(("optimizer", "kept"), [("all", [4, 8, 12]), ("newest", [12]), ("none", [])])
def test_of_the_checkpoints_that_stay_those_that_were_asked_for_keep_the_optimizer(
    optimizer: str, kept: list[int], keeping: Callable[..., RunConfig], finished_once: Path
) -> None:
    config = keeping(optimizer)
    assert run(config) == DONE
    steps = [publish.step_of(one) for one in publish.existing(config.run_dir / "checkpoints")]
    assert (steps, with_optimizer(config)) == ([4, 8, 12], kept)
    models = [run_dir / "checkpoints/step-00000012/hf" for run_dir in (config.run_dir, finished_once)]
    assert len({(model / "model.safetensors").read_bytes() for model in models}) == 1
    assert history(config.run_dir) == history(finished_once)


def test_a_checkpoint_without_its_optimizer_stands_for_the_same_checkpoint(finished: RunConfig) -> None:
    saved = publish.existing(finished.run_dir / "checkpoints")
    before = [(checkpoint_sha256(one), model_version(publish.manifest(one))) for one in saved]
    for _ in range(2):
        retention.drop_optimizers(saved[-1], of_newest=True)
    assert with_optimizer(finished) == []
    assert [(checkpoint_sha256(one), model_version(publish.manifest(one))) for one in saved] == before


def test_a_run_that_shall_keep_no_optimizer_has_it_until_it_is_done(
    keeping: Callable[..., RunConfig], finished_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = keeping("none")

    def stop(session: Session) -> None:
        if session.step == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        after_each_step(patched, stop)
        assert run(config) == RESUMABLE
    assert with_optimizer(config) == [10]
    assert run(config) == DONE
    assert with_optimizer(config) == []
    assert history(config.run_dir) == history(finished_once)


@pytest.mark.slow
def test_a_run_that_shall_keep_no_optimizer_goes_on_when_it_was_killed_or_stopped(
    keeping: Callable[..., RunConfig], tmp_path: Path
) -> None:
    changed = keeping("none", max_tokens=24 * 256).model_dump(mode="json")
    whole = trained(changed, tmp_path / "whole")
    config = RunConfig.model_validate(changed)

    for number, after, status in ((signal.SIGKILL, 8, -signal.SIGKILL), (signal.SIGTERM, 16, RESUMABLE)):
        saved = sending(number, (config.run_dir / f"checkpoints/step-{after:08d}").exists)
        assert train(changed, config.run_dir, 1, during=saved) == [status]
        newest = publish.existing(config.run_dir / "checkpoints")[-1]
        assert publish.optimizer_files(newest)
    assert run(config) == DONE
    assert outcome(config.run_dir) == outcome(whole.run_dir)
    assert with_optimizer(config) == []


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", range(2))
def test_a_kill_while_the_optimizer_is_dropped_leaves_valid_checkpoints_and_the_next_start_goes_on(
    after: int, finished: RunConfig, finished_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the first or second change that it makes to files."""
    saved = publish.existing(finished.run_dir / "checkpoints")
    with monkeypatch.context() as patched:
        left = [after]

        def counted(change: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    raise KilledError
                left[0] -= 1
                return change(*arguments, **options)

            return called

        patched.setattr(Path, "unlink", counted(Path.unlink))
        patched.setattr(retention, "write_atomically", counted(retention.write_atomically))
        with pytest.raises(KilledError):
            retention.drop_optimizers(saved[-1], of_newest=False)
    for checkpoint in saved:
        publish.verify(checkpoint)
    assert publish.optimizer_files(saved[-1])
    assert run(asking_for(finished, "newest")) == DONE
    assert with_optimizer(finished) == [12]
    assert outcome(finished.run_dir) == outcome(finished_once)


def test_a_finished_run_without_optimizer_is_not_trained_further(keeping: Callable[..., RunConfig]) -> None:
    config = keeping("none")
    assert [run(config), run(config)] == [DONE, DONE]  # nothing is left to do
    longer = keeping("none", max_tokens=24 * 256)
    with pytest.raises(TrainerError) as refused:
        run(longer, allow_changes=True)
    assert "holds the model only (training.checkpoint.optimizer), so that" in str(refused.value)
    assert "Delete the directory to start over" in str(refused.value)


def test_where_the_newest_checkpoint_is_damaged_a_model_is_not_taken_for_a_training(
    finished: RunConfig,
) -> None:
    config = asking_for(finished, "newest")
    assert run(config) == DONE
    newest = config.run_dir / "checkpoints/step-00000012"
    (newest / "optimizer.safetensors").write_bytes(b"damaged")
    with pytest.raises(TrainerError, match=r"step-00000012/optimizer.*step-00000008 holds the model only"):
        run(config)


def test_a_finished_run_gives_its_optimizer_up_when_it_is_started_with_that_setting(
    finished: RunConfig,
) -> None:
    assert with_optimizer(finished) == [8, 12]
    for wanted, kept in (("newest", [12]), ("none", [])):
        assert run(asking_for(finished, wanted)) == DONE
        assert with_optimizer(finished) == kept


def test_averaged_weights_are_those_of_a_run_that_keeps_its_optimizer(
    keeping: Callable[..., RunConfig], tmp_path: Path
) -> None:
    models = []
    for wanted in ("all", "none"):
        config = keeping(wanted, averaging={"half_life_tokens": 512})
        config = config.model_copy(update={"run_dir": tmp_path / wanted})
        assert run(config) == DONE
        models.append((config.run_dir / "checkpoints/step-00000012/hf/model.safetensors").read_bytes())
    assert models[0] == models[1] and with_optimizer(config) == []


@pytest.mark.slow
def test_a_split_model_loses_the_part_of_each_process(
    keeping: Callable[..., RunConfig], tmp_path: Path
) -> None:
    split = {"optimizer": {"kind": "adamw"}, "micro_batch_size": 2, "parallel": {"dp_shard": 2}}
    for wanted, kept in (("newest", [12]), ("none", [])):
        config = keeping(wanted, **split).model_copy(update={"run_dir": tmp_path / wanted})
        assert train(config.model_dump(mode="json"), config.run_dir, 2) == [DONE] * 2
        assert with_optimizer(config) == kept


def test_which_optimizers_are_kept_changes_nothing_of_what_names_a_run(
    keeping: Callable[..., RunConfig],
) -> None:
    shards = {"prose": "a", "code": "b"}
    identities = [run_identity(keeping(kept), "fp32", shards) for kept in ("all", "newest", "none")]
    assert identities[0] == identities[1] == identities[2]
