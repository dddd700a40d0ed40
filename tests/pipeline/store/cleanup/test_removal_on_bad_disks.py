"""Old runs are removed on a full disk, on one without links, and after a removal that was killed."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.store.cleanup import gc
from pipeline.store.cleanup.old_runs import Limits
from pipeline.store.store import Store
from pipeline.store.training_runs import RECORDS
from tests.pipeline.store.cleanup.test_retention import trained
from tests.torture.faults import mounted


def test_a_full_disk_is_freed_of_old_runs(store: Store) -> None:
    old_run = trained(store, 1).config.run_dir
    trained(store, 2)
    configuration = (old_run / "config.yaml").read_bytes()
    used = on_a_full_disk("gc", "--keep", "1", "--delete")
    assert used.returncode == 0, used.stderr
    assert not old_run.exists()
    assert (store.root / RECORDS / f"{old_run.name}.yaml").read_bytes() == configuration


def test_an_old_run_goes_on_a_file_system_without_links_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(source))

    old_run = trained(store, 1).config.run_dir
    trained(store, 2)
    configuration = (old_run / "config.yaml").read_bytes()
    monkeypatch.setattr(os, "link", refused)
    gc.remove(store, gc.find(store, Limits(runs=1)))
    assert not old_run.exists()
    assert (store.root / RECORDS / f"{old_run.name}.yaml").read_bytes() == configuration
    assert [path.name for path in (store.root / RECORDS).iterdir()] == [f"{old_run.name}.yaml"]


def test_a_command_on_a_full_disk_says_so_in_a_sentence(store: Store) -> None:
    run = trained(store, 1)
    used = on_a_full_disk("keep", f"{run.config.run_dir.name}-00000032")
    assert (used.returncode, used.stdout) == (2, "")
    last = used.stderr.splitlines()[-1]  # a busy machine says what it loads, too
    why = "cannot be written (File too large): free some space"
    assert last.startswith(f"error: {run.config.run_dir / 'keep.txt'} {why}")


@pytest.mark.parametrize(
    "command", [["keep", "{run}"], ["keep", "{run}", "--no"], ["gc", "--keep=1", "--delete"]]
)
def test_a_command_on_a_read_only_disk_names_the_place_and_the_remedy(
    store: Store, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    run = trained(store, 1).config.run_dir.name
    trained(store, 2)
    if not mounted("--bind", store.root, store.root):
        pytest.skip("no file system can be mounted")
    try:
        assert mounted("-o", "remount,bind,ro", store.root)
        assert main([one.format(run=run) for one in command]) == 2
    finally:
        subprocess.run(["umount", "-l", store.root], check=True)
    said = capsys.readouterr().err
    assert said.startswith(f"error: {store.root}/")
    assert said.endswith(
        "(Read-only file system): free some space, or make its disk writable, and run again\n"
    )


def on_a_full_disk(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command that cannot give any file a byte."""
    return subprocess.run(
        [sys.executable, "-B", "-m", "pipeline", *arguments],
        capture_output=True,
        text=True,
        preexec_fn=_no_file_gets_a_byte,
    )


def _no_file_gets_a_byte() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("doomed", ["run", "checkpoint"])
def test_what_a_killed_removal_left_is_counted_and_removed_the_next_day(
    store: Store, monkeypatch: pytest.MonkeyPatch, doomed: str
) -> None:
    trained(store, 1)
    trained(store, 2)
    garbage = gc.find(store, Limits(runs=1) if doomed == "run" else Limits(checkpoints=1))
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        gc.remove(store, garbage)
    left = [path for path in (store.root / "runs").rglob(".*.tmp") if path.is_dir()]
    assert left and not {item.paths[0] for item in gc.find(store)} & {*left}
    for path in [one for directory in left for one in (directory, *directory.rglob("*"))]:
        os.utime(path, (time.time() - 2 * gc.UNFINISHED_AFTER_SECONDS,) * 2)
    table = gc.uses(store)
    assert sum(use.bytes for use in table) == gc.bytes_below([store.root])
    gc.remove(store, gc.find(store))
    assert not any(path.exists() for path in left)
