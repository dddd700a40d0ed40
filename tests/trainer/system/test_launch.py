"""How the pipeline starts a trainer."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.steps.training import process_group
from tests.integration.project import until
from tests.trainer.runs import ROOT, printed
from trainer.system import launch
from trainer.system.errors import PROCESS_LOST, RESUMABLE


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


def test_a_canceled_run_has_the_pool_until_its_trainer_has_saved() -> None:
    settings = yaml.safe_load((ROOT / "dagster_home" / "dagster.yaml").read_text())
    assert settings["run_monitoring"]["cancel_timeout_seconds"] > process_group.GRACE_SECONDS


STOPPED = """
import signal, sys, time
from pathlib import Path

def stop(*_):
    time.sleep(float(sys.argv[1]))
    (here / "saved").touch()
    sys.exit(75)

here = Path(__file__).parent
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, stop)
(here / "ready").touch()
time.sleep(300)
"""


def stopped(
    directory: Path, number: signal.Signals, saving_seconds: float, **variables: str
) -> tuple[int, str]:
    """The exit status and stderr of torchrun, started by hand and stopped by a signal."""
    (directory / "program.py").write_text(STOPPED)
    options = ["--standalone", str(directory / "program.py"), str(saving_seconds)]
    process = subprocess.Popen(
        [sys.executable, "-m", "trainer.system.torchrun", *options],
        cwd=ROOT,
        env=os.environ | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    until((directory / "ready").exists, 60)
    process.send_signal(number)
    return process.wait(timeout=120), process.communicate()[1]


@pytest.mark.parametrize(
    ("number", "seconds"),
    [(signal.SIGUSR1, 0.1), pytest.param(signal.SIGTERM, 35, marks=pytest.mark.slow)],
    ids=["Slurm's signal", "longer than torchrun's own patience"],
)
def test_torchrun_started_by_hand_passes_a_stop_on_and_waits_until_all_is_saved(
    tmp_path: Path, number: signal.Signals, seconds: float
) -> None:
    status, _ = stopped(tmp_path, number, seconds)
    assert (status, (tmp_path / "saved").exists()) == (RESUMABLE, True)


def test_torchrun_never_says_that_a_run_was_saved_whose_process_it_killed(tmp_path: Path) -> None:
    status, said = stopped(tmp_path, signal.SIGTERM, 60, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="1")
    assert status == 128 + signal.SIGKILL and not (tmp_path / "saved").exists()
    assert said.count("\n") == 1 and "was killed; run again to resume from the newest checkpoint" in said


def test_somebody_without_a_home_directory_has_no_key_of_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user whom the machine does not know, in a container or a service."""
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    for name in ("HOME", "WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    assert [*launch.trackers_without_place(["tensorboard"])] == []
    assert "wandb finds no key" in next(launch.trackers_without_place(["wandb"]))


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
    assert int(printed(code)) * 1024 > 128 << 20


def test_reading_shards_and_configurations_never_loads_torch() -> None:
    loaded = "import sys, trainer.data.shards, trainer.config, trainer.system.launch; print(*sys.modules)"
    assert "torch" not in printed(loaded).split()


@pytest.mark.parametrize("given", [[], ["--local-addr=127.0.0.5"]], ids=["by default", "given"])
def test_the_processes_of_one_machine_meet_although_it_cannot_resolve_its_own_name(given: list[str]) -> None:
    command = [sys.executable, "-m", "trainer.system.torchrun", "--standalone", *given, "--no-python"]
    printed = subprocess.run(
        [*command, "printenv", "MASTER_ADDR"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert printed.stdout.strip() == ("127.0.0.5" if given else "127.0.0.1")


C10D = ["--rdzv-backend=c10d"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--master-port={port}"], "EADDRINUSE"),
        ([*C10D, "--rdzv-endpoint=localhost:{port}", "--rdzv-conf=is_host=1"], "EADDRINUSE"),
        ([*C10D, "--rdzv-endpoint=nowhere.invalid:1", "--rdzv-conf=read_timeout=1"], "nowhere"),
        ([*C10D, "--rdzv-endpoint=127.0.0.9:1", "--rdzv-conf=is_host=0,read_timeout=1"], "127.0.0.9"),
    ],
    ids=["port that is taken", "endpoint that is taken", "no such host", "nobody answers"],
)
def test_torchruns_that_do_not_meet_are_told_in_a_sentence_which_option_to_correct(
    options: list[str], why: str
) -> None:
    with socket.create_server(("", 0)) as taken:
        given = [option.format(port=taken.getsockname()[1]) for option in options]
        command = [sys.executable, "-m", "trainer.system.torchrun", *given, "-m", "trainer", "none.yaml"]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == PROCESS_LOST
    told = ended.stderr.splitlines()[-1]
    assert told.startswith(f"trainer: torchrun on {socket.gethostname()} does not meet those of the other")
    assert why in told and "--rdzv-endpoint" in told and "Traceback" not in ended.stderr
    assert "frame #" not in ended.stderr


def test_what_torchrun_keeps_to_itself_its_processes_say() -> None:
    command = [sys.executable, "-m", "trainer.system.torchrun", "--standalone", "--no-python"]
    printed = subprocess.run(
        [*command, "sh", "-c", "echo level $TORCH_CPP_LOG_LEVEL"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert printed.stdout.strip() == "level"
