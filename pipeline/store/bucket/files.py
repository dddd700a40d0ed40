"""The files of a store: in a directory, or in a bucket whose cache the directory is.

A trainer writes to the directory of its run in the cache. What is complete is put in the bucket meanwhile,
and brought from there to another machine.
"""

import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote

from pipeline.store import locks
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.mirror import Mirror
from pipeline.store.bucket.s3 import NONE_YET, Bucket, BucketError
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST, Files
from pipeline.store.keys import RECIPES, RUNS
from trainer.system.durable import write_atomically

log = logging.getLogger(__name__)

CACHE_VARIABLE = "GROUNDWORK_CACHE"
LIMIT_VARIABLE = "GROUNDWORK_CACHE_BYTES"
ADDRESS = ".bucket"  # in the root of a cache: the address of its bucket
# Another machine may use what nothing names yet, and no lock tells.
YOUNG_SECONDS = 24 * 3600.0
VERSION = re.compile(r"[0-9a-f]{16}")
SMALL = {".json", ".jsonl", ".yaml", ".png", ".txt"}
CHECKPOINTS = "checkpoints"
CLAIM = ".trainer"  # held in the bucket by the process that trains a run
CLAIM_SECONDS = 300.0
LOOK_EVERY_SECONDS = 2.0
REFRESHED_EVERY_SECONDS = 60.0
FILES_AT_ONCE = 4


class BucketFiles(Mirror):
    """Every file is in the bucket; those that were used lately are in the directory `root`, too."""

    def __reduce__(self) -> tuple[object, tuple[Path, str, int | None]]:
        """Another process gets the address, never credentials."""
        return _bucket_files, (self.root, self.bucket.url, self.cache.limit)

    def is_saved(self, checkpoint: Path) -> bool:
        return self.pull(checkpoint / MANIFEST) is not None

    def versions(self) -> dict[Path, int]:
        """Needs a listing of everything."""
        found: dict[Path, tuple[int, int]] = {}
        wanted: dict[Path, str] = {}
        for one in self.bucket.objects(""):
            path = self.root / one.key
            version = next((parent for parent in path.parents if VERSION.fullmatch(parent.name)), None)
            if version is None or one.key.startswith((f"{RUNS}/", f"{RECIPES}/")):
                continue
            size, newest = found.get(version, (0, 0))
            found[version] = size + one.bytes, max(newest, one.modified)
            if path.name in (MANIFEST, "lineage.json"):
                wanted[path] = one.etag
        for path in self.root.rglob(MANIFEST):
            if VERSION.fullmatch(path.parent.name) and path.parent not in found:
                path.unlink()
        self.pull_all([path for path, etag in wanted.items() if self.differs(path, etag)])
        self.pull_runs()
        before = (time.time() - YOUNG_SECONDS) * 1e9
        return {version: size for version, (size, newest) in found.items() if newest < before}

    def abort_old_uploads(self) -> int:
        """Of uploads in slices."""
        before = time.time() - YOUNG_SECONDS
        old = [(key, upload) for key, upload, begun in self.bucket.unfinished() if begun < before]
        for key, upload in old:
            self.bucket.abort(key, upload)
        return len(old)

    def pull_runs(self, run: Path | None = None) -> None:
        """Needs a listing."""
        folder = run or self.root / RUNS
        stale: list[Path] = []
        there: set[Path] = set()
        for one in self.bucket.objects(f"{self.key(folder)}/"):
            path = self.root / one.key
            there.add(path)
            if path.suffix not in SMALL or "hf" in path.parts or "tensorboard" in path.parts:
                continue
            # what is newer here is being written, or has still to be put
            if not path.exists() or (path.stat().st_mtime_ns < one.modified and self.differs(path, one.etag)):
                stale.append(path)
        names = {path.relative_to(self.root).parts[1] for path in stale}
        idle = {name for name in names if _is_idle(self.root / RUNS / name)}
        self.pull_all([path for path in stale if path.relative_to(self.root).parts[1] in idle])
        for directory in [run] if run else folder.glob("[!.]*"):
            for checkpoint in _named(directory):
                if checkpoint / MANIFEST not in there and not _is_whole(checkpoint):
                    shutil.rmtree(checkpoint, ignore_errors=True)  # removed, and here only by name

    @contextmanager
    def uploading(self, run: Path, reads: Sequence[Path]) -> Iterator[None]:
        """A thread puts what the run writes: the files of a checkpoint, then its manifest. What the trainer
        has mapped stays in the cache.
        """
        ended = threading.Event()
        with self._claimed(run) as refresh:
            self.pull_runs(run)
            if saved := _named(run):
                self.fetch_folder(saved[-1])
            upload = _Upload(self, run)

            def follow() -> None:
                refreshed = time.monotonic()
                while not ended.wait(LOOK_EVERY_SECONDS):
                    upload.once(last=False)
                    if time.monotonic() - refreshed > REFRESHED_EVERY_SECONDS:
                        refreshed = time.monotonic()
                        refresh()
                        for path in reads:
                            self.cache.used(path)

            thread = threading.Thread(target=follow, daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()
                upload.once(last=True)

    @contextmanager
    def _claimed(self, run: Path) -> Iterator[Callable[[], None]]:
        """One machine at a time trains a run; others wait. Yields what says that this one still does."""
        mine, said = f"{os.uname().nodename} {os.getpid()}\n".encode(), 0.0
        key = self.key(run / CLAIM)
        while not self.bucket.put(key, mine, NONE_YET):
            found = self.bucket.get(key)
            if found and _is_over(found[0].decode(), found[1].modified):
                self.bucket.delete([key])
            elif found and time.monotonic() - said > REFRESHED_EVERY_SECONDS:
                said = time.monotonic()
                log.info("%s: process %s trains it, waiting for that process", run, found[0].decode().strip())
            time.sleep(LOOK_EVERY_SECONDS)

        def refresh() -> None:
            with suppress(PipelineError):
                self.bucket.put(key, mine)

        try:
            yield refresh
        finally:
            self.bucket.delete([key])


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


@cache
def _bucket_files(root: Path, url: str, limit: int | None) -> BucketFiles:
    """One object for each process, which keeps connections."""
    return BucketFiles(root, Bucket(url), Cache(root, limit))


def cache_of(url: str, usual: Path) -> Path:
    """The directory of the store at this address: its cache, in GROUNDWORK_CACHE or else in `usual`. Raises
    BucketError.
    """
    url = url.rstrip("/")
    Bucket(url)
    place = Path(os.environ.get(CACHE_VARIABLE) or usual).absolute()
    root = place / quote(url.removeprefix("s3://").strip("/"), safe="")
    if not (root / ADDRESS).is_file():
        write_atomically(root / ADDRESS, url + "\n")
    _limit()
    return root


def files_in(root: Path) -> Files:
    """The files of the store whose directory this is: a cache holds the address of its bucket."""
    if not (root / ADDRESS).is_file():
        return Files(root)
    return _bucket_files(root, (root / ADDRESS).read_text(encoding="utf-8").strip(), _limit())


def _limit() -> int | None:
    limit = os.environ.get(LIMIT_VARIABLE)
    if limit and not limit.isdecimal():
        raise BucketError(f"{LIMIT_VARIABLE} is {limit!r}: give a number of bytes, such as 200000000000")
    return int(limit) if limit else None
