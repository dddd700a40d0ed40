"""Saving beside training: nothing is told before it is on disk, and the moment asked for is written."""

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.trainer.models import small
from tests.trainer.parallel.processes import together
from tests.trainer.steps import ALONE, after_each_step
from tests.trainer.trained import saved, trained
from trainer.checkpoint import publish
from trainer.checkpoint.background import CheckpointWriter, Staging
from trainer.config import RunConfig
from trainer.parallel.world import World
from trainer.run.loop import run
from trainer.run.session import Session
from trainer.system.errors import TrainerError


def test_a_checkpoint_is_announced_once_it_is_committed_and_training_does_not_wait_for_it(
    tmp_path: Path,
) -> None:
    announced: list[Path] = []
    may_end = threading.Event()
    writer = CheckpointWriter(announced.append, ALONE)

    def write(directory: Path) -> None:
        (directory / "state").write_text("all of it")
        assert may_end.wait(30)

    checkpoint = tmp_path / "step-00000001"
    writer.save(checkpoint, write, lambda saved: None)
    writer.poll()
    assert announced == [] and not checkpoint.exists()
    may_end.set()
    writer.wait()
    assert announced == [checkpoint]
    publish.verify(checkpoint)
    writer.close()


def test_what_goes_wrong_in_the_thread_is_told_to_training(tmp_path: Path) -> None:
    writer = CheckpointWriter(lambda saved: pytest.fail("announced"), ALONE)

    def write(directory: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer.save(tmp_path / "step-00000001", write, lambda saved: None)
    with pytest.raises(
        TrainerError, match=r"step-00000001: cannot be saved .*No space left.*Earlier checkpoints are intact"
    ):
        writer.wait()
    assert list(tmp_path.iterdir()) == []
    writer.close()


def save_a_part(directory: Path, broken: bool) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    world = World(rank, 2, torch.device("cpu"), background=dist.new_group(backend="gloo"))
    writer = CheckpointWriter(lambda saved: None, world)

    def write(made: Path) -> None:
        if broken and rank:
            raise OSError(errno.ENOSPC, "No space left on device")
        (made / f"part-{rank}").write_text("all of it")

    writer.save(directory / "step-00000001", write, lambda saved: None)
    try:
        writer.wait()
    except TrainerError as error:
        (directory / f"said-{rank}").write_text(str(error))
    dist.destroy_process_group()


@pytest.mark.parametrize("broken", [False, True])
def test_a_checkpoint_holds_the_parts_of_all_processes_or_is_not_published(
    tmp_path: Path, broken: bool
) -> None:
    assert together(save_a_part, 2, tmp_path, broken) == [0, 0]
    checkpoint = tmp_path / "step-00000001"
    if broken:
        assert not checkpoint.exists()
        assert "another process could not write its part" in (tmp_path / "said-0").read_text()
        assert "No space left" in (tmp_path / "said-1").read_text()
    else:
        publish.verify(checkpoint)
        assert {path.name for path in checkpoint.glob("part-*")} == {"part-0", "part-1"}


@pytest.mark.parametrize("tied", [True, False])
def test_the_copy_that_is_written_does_not_follow_training(tied: bool) -> None:
    model = small(vocab_size=50, context=8, tie_embeddings=tied)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    copy = Staging().model(model, ALONE)
    assert copy is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert {name for name, _ in copy.named_parameters()} == before.keys()
    for name, parameter in copy.named_parameters():
        assert torch.equal(parameter, before[name])
    assert (copy.lm_head.weight is copy.model.embed_tokens.weight) == tied


def steps(config: RunConfig) -> list[int]:
    return [publish.step_of(checkpoint) for checkpoint in saved(config)]


def test_the_newest_stay_and_those_at_multiples_for_good(settings: dict[str, Any]) -> None:
    kept = {"every_tokens": 4 * 256, "keep_last": 1, "keep_every_tokens": 6 * 256}
    assert steps(trained(settings, checkpoint=kept)) == [6, 12]


def test_checkpoints_can_come_by_the_clock(settings: dict[str, Any]) -> None:
    often = {"every_minutes": 1e-6, "keep_last": 99}
    assert steps(trained(settings, checkpoint=often)) == list(range(1, 13))


def test_a_run_whose_checkpoint_cannot_be_saved_ends_before_the_next_is_due(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def slowly(session: Session) -> None:
        taken.append(session.step)
        time.sleep(0.3)

    taken: list[int] = []
    after_each_step(monkeypatch, slowly)
    monkeypatch.setattr(publish, "publish", full)
    settings["training"]["checkpoint"] = {"every_tokens": 4 * 256}
    with pytest.raises(TrainerError, match="cannot be saved"):
        run(RunConfig.model_validate(settings))
    assert taken[-1] < 8
