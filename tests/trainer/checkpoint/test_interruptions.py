"""Killed and stopped, while it saves too, or out of disk, a run ends in the bytes of one left alone."""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs import outcome, start, write_config
from tests.trainer.trained import trained
from trainer.checkpoint import publish
from trainer.config import RunConfig
from trainer.run.loop import DONE, run
from trainer.system.durable import read_json_lines
from trainer.system.errors import RESUMABLE, TrainerError

INTERRUPTIONS = 20


@pytest.mark.slow
def test_twenty_random_interruptions_change_no_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    chooser = random.Random(seed)
    settings["training"] |= {
        "max_tokens": 300 * 256,
        "checkpoint": {"every_tokens": 5 * 256, "keep_last": 3, "keep_every_tokens": 50 * 256},
    }
    settings["training"]["evaluation"]["every_tokens"] = 40 * 256
    trained(settings, tmp_path / "whole")

    run_dir = tmp_path / "run"
    config = write_config(settings, tmp_path / "run.yaml", run_dir)
    in_saves = 0
    for _ in range(INTERRUPTIONS):
        number, in_save = chooser.choice([signal.SIGKILL, signal.SIGTERM]), chooser.random() < 0.4
        until = _steps(run_dir) + chooser.randint(0, 12)
        process = start(config)
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            saving = any(run_dir.glob("checkpoints/.step-*.tmp"))
            if _steps(run_dir) >= until and (saving or not in_save):
                in_saves += saving
                process.send_signal(number)
                break
            time.sleep(0.001)
        _, errors = process.communicate(timeout=300)
        assert process.returncode in (DONE, RESUMABLE, -signal.SIGKILL, -signal.SIGTERM), errors
        assert publish.newest_valid(run_dir / "checkpoints")[1] == []
    print(f"{in_saves} of {INTERRUPTIONS} while a checkpoint was written")
    trained(settings, run_dir)
    assert outcome(run_dir) == outcome(tmp_path / "whole")


def _steps(run_dir: Path) -> int:
    """The last step that the metrics on disk or the newest checkpoint know of."""
    checkpoints = publish.existing(run_dir / "checkpoints")
    logged = read_json_lines(run_dir / "metrics.jsonl")
    return max(logged[-1]["step"] if logged else 0, publish.step_of(checkpoints[-1]) if checkpoints else 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_no_earlier_checkpoint(
    settings: dict[str, Any], small_disk: Path, tmp_path: Path
) -> None:
    settings["training"]["samples"] = {"prompts": []}
    config = RunConfig.model_validate({**settings, "run_dir": str(small_disk / "run")})
    room = shutil.disk_usage(small_disk).free
    (small_disk / "ballast").write_bytes(b"x" * (room - 400_000))
    with pytest.raises(
        TrainerError, match=r"0 MB free, but 3 checkpoints of .* will be written\. Free some space"
    ):
        run(config)
    assert not config.run_dir.exists()

    (small_disk / "ballast").unlink()
    settings["training"]["max_tokens"] = 200 * 256
    path = write_config(settings, tmp_path / "run.yaml", config.run_dir)
    process = start(path)
    while not publish.existing(config.run_dir / "checkpoints"):
        assert process.poll() is None
        time.sleep(0.005)
    with suppress(OSError), (small_disk / "ballast").open("wb") as ballast:
        while True:
            ballast.write(b"x" * 4096)
            ballast.flush()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2 and "No space left" in errors, errors
    saved = publish.existing(config.run_dir / "checkpoints")
    assert saved and publish.newest_valid(config.run_dir / "checkpoints") == (saved[-1], [])

    (small_disk / "ballast").unlink()
    trained(settings, config.run_dir)
    trained(settings, tmp_path / "whole")
    assert outcome(config.run_dir) == outcome(tmp_path / "whole")
