"""One process at a time trains a run, whatever the other machine is like; one that lost it writes nothing."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeline.store.bucket.claim import Claim, claimed
from pipeline.store.bucket.objects import Bucket
from pipeline.store.files import MANIFEST
from tests.pipeline.store.bucket.test_s3 import address, objects, store
from tests.s3_server import S3
from trainer.system.durable import write_atomically
from trainer.system.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("s3_environment")

TAKER = """
import sys, time
from pipeline.store.bucket.claim import claimed
from pipeline.store.bucket.objects import Bucket
now, ahead = time.time, float(sys.argv[2])
time.time = lambda: now() + ahead
with claimed(Bucket(sys.argv[1]), ".trainer"):
    print("has it", flush=True)
"""
TRAINER = """
import sys, time
from pathlib import Path
from pipeline.store.bucket import claim, run_upload
from pipeline.store.bucket.files import cache_of
from pipeline.store.store import Store
claim.CLAIM_SECONDS, claim.RENEWED_EVERY_SECONDS, run_upload.LOOK_EVERY_SECONDS = 5.0, 0.5, 0.1
files = Store(cache_of(sys.argv[1], Path(sys.argv[2]))).files
try:
    with files.uploading(files.root / "runs" / ("a" * 16), []) as check:
        print("trains", flush=True)
        while True:
            check()
            time.sleep(0.05)
except claim.ClaimLostError as error:
    print(error, flush=True)
"""
APART = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def python(script: str, *arguments: str, under: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    command = [*under, sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("under", "ahead"), [(APART, "0"), ((), "360")], ids=["other processes", "other clock"]
)
def test_the_claim_of_a_live_process_is_not_taken(tmp_path: Path, under: tuple[str, ...], ahead: str) -> None:
    """From a container with the same host name, and from a machine whose clock is six minutes ahead."""
    if under and (os.geteuid() != 0 or shutil.which("unshare") is None):
        pytest.skip("no processes of its own for a process: that needs root and unshare")
    with claimed(Bucket(address(tmp_path)), ".trainer") as mine:
        other = python(TAKER, address(tmp_path), ahead, under=under)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(6)
        mine.confirm()
    assert other.communicate(timeout=20)[0] == "has it\n"


def test_the_claim_of_a_process_that_was_killed_here_is_taken_at_once(tmp_path: Path) -> None:
    killed = python(TRAINER, address(tmp_path), str(tmp_path / "one"))
    assert killed.stdout and killed.stdout.readline() == "trains\n"
    killed.kill()
    killed.wait()
    began = time.monotonic()
    with claimed(Bucket(address(tmp_path)), f"runs/{'a' * 16}/.trainer"):
        assert time.monotonic() - began < 5


def test_a_process_that_lost_its_claim_writes_nothing_and_ends_no_other_claim(
    server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(store(tmp_path).files.root / "runs" / ("a" * 16))
    frozen = python(TRAINER, address(tmp_path), str(tmp_path / "one"))
    assert frozen.stdout and frozen.stdout.readline() == "trains\n"
    os.kill(frozen.pid, signal.SIGSTOP)
    monkeypatch.setattr("pipeline.store.bucket.claim.CLAIM_SECONDS", 5.0)
    monkeypatch.setattr("pipeline.store.bucket.claim.RENEWED_EVERY_SECONDS", 0.5)
    with claimed(Bucket(address(tmp_path)), f"runs/{run.path.name}/.trainer") as mine:
        write_atomically(run.checkpoints / "step-00000001" / MANIFEST, '{"files": {}}')
        os.kill(frozen.pid, signal.SIGCONT)
        said = frozen.communicate(timeout=30)[0]
        assert f"runs/{run.path.name}/.trainer: this process has lost its claim" in said
        assert len(said.splitlines()) == 1
        mine.confirm()
    assert objects(server, tmp_path) == [f"runs/{run.path.name}/.trainer"]


def test_a_claim_whose_answer_was_lost_is_known_again(tmp_path: Path) -> None:
    bucket = Bucket(address(tmp_path))
    claim = Claim(bucket, ".trainer")
    assert bucket.put(".trainer", claim._owner + b"1\n")  # of which this process heard nothing
    claim.take()
    claim.confirm()


def test_a_claim_that_is_renewed_at_the_last_moment_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After another process found the claim too old, before that process takes it."""
    mine, other, renewed = Claim(Bucket(address(tmp_path)), ".trainer"), Bucket(address(tmp_path)), []
    mine.take()

    def much_later(bucket: Bucket) -> int:
        if renewed:
            return 0
        renewed.append(mine.confirm())
        return time.time_ns() + 10**12

    monkeypatch.setattr(Bucket, "now", much_later)
    waiting = threading.Thread(target=Claim(other, ".trainer").take, daemon=True)
    waiting.start()
    waiting.join(4)
    assert renewed and waiting.is_alive()
    mine.confirm()
    mine.release()
    waiting.join(20)
    assert not waiting.is_alive()
