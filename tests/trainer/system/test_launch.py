"""How the pipeline starts a trainer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.steps.training import process_group
from tests.integration.project import until
from trainer.system import launch

ROOT = Path(__file__).parents[3]


def test_one_process_is_plain_python_and_several_are_torchrun() -> None:
    assert launch.command(Path("c.yaml")) == [sys.executable, "-m", "trainer", "c.yaml"]
    several = launch.command(Path("c.yaml"), processes=2)
    assert several[:3] == [sys.executable, "-m", "trainer.system.torchrun"]
    assert "--nproc-per-node=2" in several
    assert several[-3:] == ["-m", "trainer", "c.yaml"]


def test_processes_share_the_cores() -> None:
    assert launch.environment(processes=1000)["OMP_NUM_THREADS"] == "1"


def test_torchrun_waits_longer_than_a_large_model_takes_to_save_and_the_pipeline_longer_still() -> None:
    patience = int(launch.environment()["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"])
    assert 600 <= patience < process_group.GRACE_SECONDS


@pytest.mark.slow
def test_a_step_longer_than_torchruns_own_patience_is_saved_when_torchrun_is_stopped(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\nfrom pathlib import Path\nhere = Path(__file__).parent\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(35), (here / 'saved').touch(), sys.exit(75)))\n"
        "(here / 'ready').touch()\ntime.sleep(300)\n"
    )
    (tmp_path / "trainer.py").write_text(program)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", tmp_path / "trainer.py"]
    process = subprocess.Popen(torchrun, env={**os.environ, **launch.environment(1)})
    until((tmp_path / "ready").exists, 60)
    process.terminate()
    process.wait(timeout=120)
    assert (tmp_path / "saved").exists()


def test_threads_default_to_the_cores_that_may_be_used() -> None:
    assert launch.environment(3)["OMP_NUM_THREADS"] == "3"
    assert int(launch.environment()["OMP_NUM_THREADS"]) == launch.physical_cores() >= 1


THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not THP.exists() or "[madvise]" not in THP.read_text(), reason="no huge pages on request")
def test_large_tensors_are_in_huge_pages_where_the_kernel_gives_them_on_request() -> None:
    code = (
        "import torch; kept = torch.ones(64 << 20); "
        "print(sum(int(line.split()[1]) for line in open('/proc/self/smaps') if 'AnonHugePages' in line))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **launch.environment(1)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(process.stdout) * 1024 > 128 << 20


def test_reading_shards_and_configurations_never_loads_torch() -> None:
    code = (
        "import sys, trainer.data.shards, trainer.config, trainer.system.launch; sys.exit('torch' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
