"""How the pipeline starts a trainer."""

import subprocess
import sys
from pathlib import Path

from trainer.system import launch

ROOT = Path(__file__).parents[3]


def test_one_process_is_plain_python_and_several_are_torchrun() -> None:
    assert launch.command(Path("c.yaml")) == [sys.executable, "-m", "trainer", "c.yaml"]
    several = launch.command(Path("c.yaml"), processes=2)
    assert several[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert "--nproc-per-node=2" in several
    assert several[-3:] == ["-m", "trainer", "c.yaml"]


def test_processes_share_the_cores() -> None:
    assert launch.environment(processes=1000)["OMP_NUM_THREADS"] == "1"


def test_threads_default_to_the_cores_that_may_be_used() -> None:
    assert launch.environment(3)["OMP_NUM_THREADS"] == "3"
    assert int(launch.environment()["OMP_NUM_THREADS"]) == launch.physical_cores() >= 1


def test_reading_shards_and_configurations_never_loads_torch() -> None:
    code = (
        "import sys, trainer.data.shards, trainer.config, trainer.system.launch; sys.exit('torch' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
