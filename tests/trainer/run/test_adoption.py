"""Whatever happens while a run makes the state of another its own, it ends in the bytes of a training from
the first step, and no half checkpoint is ever visible.
"""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs import outcome, start, write_config
from tests.trainer.trained import trained
from trainer.checkpoint import publish, retention
from trainer.config import RunConfig
from trainer.run.loop import DONE, run
from trainer.system.durable import unpublished
from trainer.system.errors import TrainerError
from trainer.system.run_history import RunHistory

STEP = 256  # tokens
SHARED = 9  # the last step that a run of 12 steps shares with one of 16
# What every process would import in six seconds.
PRELOADED = ["trainer.run.loop", "torch._dynamo", "matplotlib.backends.backend_agg", __name__]
OPERATIONS = ("open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir")


def kill(trunk: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def drop_optimizer(trunk: Path) -> None:
    """As the other run does it when it has come further."""
    retention.drop_optimizers(publish.existing(trunk / "checkpoints")[-1], of_newest=True)


def retire(trunk: Path) -> None:
    for checkpoint in publish.existing(trunk / "checkpoints"):
        retention.remove(checkpoint)


def collect(trunk: Path) -> None:
    """As `gc` does it."""
    if trunk.exists():
        trunk.rename(unpublished(trunk))
        shutil.rmtree(unpublished(trunk))


def delete(trunk: Path) -> None:
    """By hand, the metrics first."""
    (trunk / "metrics.jsonl").unlink(missing_ok=True)
    shutil.rmtree(trunk, ignore_errors=True)


def _go_on(settings: dict[str, Any], moment: int, disturb: Callable[[Path], None], log: Path) -> None:
    """In a process of its own: trains `long`, and disturbs it at its `moment`th operation on a file of any
    run. Logs the number of operations before it has adopted the state.
    """
    runs, count = settings["runs"], 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in OPERATIONS or not str(arguments[0]).startswith(runs):
            return
        count += 1
        if count == moment:
            disturb(Path(runs, "first"))
        elif not moment and event == "os.rename" and str(arguments[1]).endswith(f"step-{SHARED:08d}"):
            log.write_text(str(count))

    sys.addaudithook(hook)
    try:
        status = run(RunConfig.model_validate(settings))
    except TrainerError as error:
        print(error, file=sys.stderr)
        status = 2
    sys.exit(status)


class Place:
    """Runs `first`, of 12 steps, and `long`, of 16, which stopped at step 4 or has not begun, as they were
    before any disturbance, and what `long` ends in.
    """

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        settings["training"] |= {
            "schedule": {"kind": "wsd", "warmup_tokens": 2 * STEP, "decay_fraction": 0.25},
            "checkpoint": {"every_tokens": STEP, "keep_last": 99},
        }
        self.folder, self.runs = folder, folder / "runs"
        whole = folder / "whole"
        for name, steps in (("first", 12), ("long", 16)):
            training = {**settings["training"], "max_tokens": steps * STEP}
            one = {**settings, "run_dir": str(whole / name), "training": training}
            trained(one)
        self.settings = {**one, "runs": str(self.runs), "run_dir": str(self.runs / "long")}
        self.expected = outcome(whole / "long")
        for checkpoint in publish.existing(whole / "long" / "checkpoints")[4:]:
            shutil.rmtree(checkpoint)

    def restore(self, own: bool) -> None:
        shutil.rmtree(self.runs, ignore_errors=True)
        shutil.copytree(self.folder / "whole", self.runs)
        if not own:
            shutil.rmtree(self.runs / "long")

    def go_on(self, moment: int = 0, disturb: Callable[[Path], None] = kill) -> int | None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        arguments = (self.settings, moment, disturb, self.folder / "operations")
        process = context.Process(target=_go_on, args=arguments)
        process.start()
        process.join(300)
        return process.exitcode

    def operations(self, own: bool) -> int:
        self.restore(own)
        assert self.go_on() == DONE
        return int((self.folder / "operations").read_text())


@pytest.fixture
def place(settings: dict[str, Any], tmp_path: Path) -> Place:
    return Place(settings, tmp_path)


# One moment amid what is read of the other run, and as slow tests the others; the run has no checkpoint yet,
# or one of its own.
QUICK = (False, 19, 999)
SLOW = [pytest.param(own, 1, every, marks=pytest.mark.slow) for every in (1, 6) for own in (False, True)]


@pytest.mark.parametrize("own, first, every", [QUICK, *SLOW[:2]])
def test_killed_at_any_moment(place: Place, own: bool, first: int, every: int) -> None:
    for moment in range(first, place.operations(own) + 5, every):
        place.restore(own)
        assert place.go_on(moment) == -signal.SIGKILL
        checkpoints = place.runs / "long" / "checkpoints"
        for checkpoint in publish.existing(checkpoints):
            publish.verify(checkpoint)
        assert place.go_on() == DONE, moment
        assert outcome(place.runs / "long") == place.expected, moment
        assert not list(checkpoints.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("own, first, every", [QUICK, *SLOW[2:]])
def test_the_other_run_changes_at_any_moment(place: Place, own: bool, first: int, every: int) -> None:
    for moment in range(first, place.operations(own) + 2, every):
        for disturb in (drop_optimizer, retire, collect, delete):
            place.restore(own)
            assert place.go_on(moment, disturb) == DONE, (moment, disturb)
            found = outcome(place.runs / "long")
            assert found[:2] == place.expected[:2], (moment, disturb)
            if disturb is not delete:  # with the metrics goes their beginning
                assert found == place.expected, (moment, disturb)


@pytest.mark.slow
def test_branches_go_on_at_once_from_a_run_that_is_still_trained(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Two branches, one started twice, while their trunk stands still and then retires what they read."""
    wsd = {"kind": "wsd", "warmup_tokens": 2 * STEP, "decay_fraction": 0.25}
    settings["training"] |= {"max_tokens": 80 * STEP, "schedule": wsd}
    settings["training"]["checkpoint"] = {"every_tokens": 5 * STEP, "keep_last": 2}
    settings["training"]["evaluation"] = {"every_tokens": 40 * STEP, "micro_batch_size": 4}
    branches = {"early": {"schedule": wsd | {"decay_fraction": 0.5}}, "long": {"max_tokens": 90 * STEP}}
    for name, edit in branches.items():
        trained(settings, tmp_path / name, **edit)
    runs = tmp_path / "runs"

    def started(name: str, **edit: Any) -> "subprocess.Popen[str]":
        changed = {**settings, "runs": str(runs), "training": settings["training"] | edit}
        return start(write_config(changed, tmp_path / f"{name}.yaml", runs / name))

    trunk = started("trunk")
    while len(publish.existing(runs / "trunk" / "checkpoints")) < 2:
        assert trunk.poll() is None
        time.sleep(0.001)
    trunk.send_signal(signal.SIGSTOP)
    running = [started(name, **edit) for name, edit in (*branches.items(), *branches.items())][:3]
    while not any(publish.existing(runs / name / "checkpoints") for name in branches):
        time.sleep(0.01)
    trunk.send_signal(signal.SIGCONT)
    for process in (trunk, *running):
        _, said = process.communicate(timeout=600)
        assert process.returncode == DONE or "another trainer is using this run directory" in said, said
    for name in branches:
        assert RunHistory(runs / name).trunks[0]["run"] == "trunk"
        assert outcome(runs / name)[:2] == outcome(tmp_path / name)[:2]
