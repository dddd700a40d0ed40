"""Training runs of a store in a bucket. A trainer writes to its directory in the cache; what is complete is
put in the bucket meanwhile, and brought from there to another machine.
"""

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store import locks
from pipeline.store.bucket.mirror import Mirror
from pipeline.store.bucket.s3 import NONE_YET
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST
from pipeline.store.keys import RUNS

log = logging.getLogger(__name__)

SMALL = {".json", ".jsonl", ".yaml", ".png", ".txt"}
CHECKPOINTS = "checkpoints"
CLAIM = ".trainer"  # held in the bucket by the process that trains a run
CLAIM_SECONDS = 300.0
LOOK_EVERY_SECONDS = 2.0
REFRESHED_EVERY_SECONDS = 60.0
FILES_AT_ONCE = 4


def pull_runs(mirror: Mirror, run: Path | None = None) -> None:
    """Needs a listing."""
    folder = run or mirror.root / RUNS
    stale: list[Path] = []
    there: set[Path] = set()
    for one in mirror.bucket.objects(f"{mirror.key(folder)}/"):
        path = mirror.root / one.key
        there.add(path)
        if path.suffix not in SMALL or "hf" in path.parts or "tensorboard" in path.parts:
            continue
        # what is newer here is being written, or has still to be put
        if not path.exists() or (path.stat().st_mtime_ns < one.modified and mirror.differs(path, one.etag)):
            stale.append(path)
    names = {path.relative_to(mirror.root).parts[1] for path in stale}
    idle = {name for name in names if _is_idle(mirror.root / RUNS / name)}
    mirror.pull_all([path for path in stale if path.relative_to(mirror.root).parts[1] in idle])
    for directory in [run] if run else folder.glob("[!.]*"):
        for checkpoint in _named(directory):
            if checkpoint / MANIFEST not in there and not _is_whole(checkpoint):
                shutil.rmtree(checkpoint, ignore_errors=True)  # removed, and here only by name


def _named(run: Path) -> list[Path]:
    """The checkpoints of a run, whose weights may be in the bucket only."""
    return sorted(path.parent for path in run.glob(f"{CHECKPOINTS}/step-*/{MANIFEST}"))


def _is_whole(checkpoint: Path) -> bool:
    try:
        files = json.loads((checkpoint / MANIFEST).read_bytes())["files"]
    except (OSError, ValueError, KeyError):
        return False
    return all((checkpoint / name).is_file() for name in files)


def _is_idle(run: Path) -> bool:
    if not run.exists():
        return True
    with locks.alone(run / ".lock") as idle:
        return idle


@contextmanager
def uploading(mirror: Mirror, run: Path, reads: Sequence[Path]) -> Iterator[None]:
    """While this lasts, a thread puts what the run writes: the files of a checkpoint, then its manifest. In
    the end everything is there. `reads`: what the trainer has mapped, which stays in the cache.
    """
    ended = threading.Event()
    with _claimed(mirror, run) as refresh:
        pull_runs(mirror, run)
        if saved := _named(run):
            mirror.fetch_folder(saved[-1])
        upload = _Upload(mirror, run)

        def follow() -> None:
            refreshed = time.monotonic()
            while not ended.wait(LOOK_EVERY_SECONDS):
                upload.once(last=False)
                if time.monotonic() - refreshed > REFRESHED_EVERY_SECONDS:
                    refreshed = time.monotonic()
                    refresh()
                    for path in reads:
                        mirror.cache.used(path)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            upload.once(last=True)


@contextmanager
def _claimed(mirror: Mirror, run: Path) -> Iterator[Callable[[], None]]:
    """One machine at a time trains a run; others wait. Yields what says that this one still does."""
    path, mine = run / CLAIM, f"{os.uname().nodename} {os.getpid()}\n"
    key, said = mirror.key(path), 0.0
    while not mirror.bucket.put(key, mine.encode(), NONE_YET):
        found = mirror.bucket.get(key)
        if found and _is_over(found[0].decode(), found[1].modified):
            mirror.bucket.delete([key])
        elif found and time.monotonic() - said > REFRESHED_EVERY_SECONDS:
            said = time.monotonic()
            log.info("%s: process %s trains it, waiting for that process", run, found[0].decode().strip())
        time.sleep(LOOK_EVERY_SECONDS)

    def refresh() -> None:
        with suppress(PipelineError):
            mirror.bucket.put(key, mine.encode())

    try:
        yield refresh
    finally:
        mirror.bucket.delete([key])


def _is_over(owner: str, modified: int) -> bool:
    """Whether a claim is of a process of this machine that is gone, or of one that has long said nothing."""
    host, _, process = owner.strip().rpartition(" ")
    if host == os.uname().nodename and not Path(f"/proc/{process}").exists():
        return True
    return time.time() - modified / 1e9 > CLAIM_SECONDS


class _Upload:
    def __init__(self, mirror: Mirror, run: Path):
        self._mirror = mirror
        self._run = run
        self._put: dict[Path, tuple[int, int]] = {}  # small files by modification time and size
        self._saved: set[Path] = set()
        self._begun = False

    def once(self, last: bool) -> None:
        """Puts what is new. Errors are for the log, as training goes on, but for the `last` time."""
        try:
            new = [path for path in self._checkpoints() if path not in self._saved]
            if new or last or not self._begun:
                self._files()
                self._begun = True
            for checkpoint in new:
                self._checkpoint(checkpoint)
            for checkpoint in self._saved - set(self._checkpoints()):  # retired
                self._mirror.remove(checkpoint)
                self._saved.remove(checkpoint)
        except PipelineError as error:
            if last:
                raise
            log.warning("%s: not put in the bucket yet: %s", self._run, first_line(error))

    def _checkpoints(self) -> list[Path]:
        return [checkpoint for checkpoint in _named(self._run) if _is_whole(checkpoint)]

    def _files(self) -> None:
        for path in sorted(self._run.rglob("*")):
            inside = path.relative_to(self._run)
            if inside.parts[0] == CHECKPOINTS or any(part.startswith(".") for part in inside.parts):
                continue
            with suppress(FileNotFoundError):  # replaced at this moment
                stat = path.stat()
                if path.is_file() and self._put.get(path) != (stat.st_mtime_ns, stat.st_size):
                    self._mirror.push(path)
                    self._put[path] = stat.st_mtime_ns, stat.st_size

    def _checkpoint(self, checkpoint: Path) -> None:
        try:
            content = (checkpoint / MANIFEST).read_bytes()
            files = json.loads(content)["files"]
            key = self._mirror.key(checkpoint / MANIFEST)
            there = self._mirror.bucket.get(key)
            if there is None or there[0] != content:
                self._mirror.bucket.delete([key])  # of a damaged checkpoint that was made again

                def put(name: str) -> None:
                    path = checkpoint / name
                    if not self._mirror.holds(path, files[name]["sha256"]):
                        self._mirror.bucket.upload(self._mirror.key(path), path, files[name]["sha256"])

                with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
                    list(threads.map(put, files))
                self._mirror.bucket.put(key, content)
        except FileNotFoundError:  # it was retired meanwhile
            self._mirror.remove(checkpoint)
            return
        self._saved.add(checkpoint)
