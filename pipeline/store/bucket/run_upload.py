"""Puts what a trainer writes to its run in the bucket while it trains."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store.bucket.claim import Claim
from pipeline.store.bucket.s3 import Bucket
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST, Files
from trainer.system.history import RunHistory

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
LOOK_EVERY_SECONDS = 2.0
REFRESHED_EVERY_SECONDS = 60.0
FILES_AT_ONCE = 4


def is_whole(checkpoint: Path) -> bool:
    """Whether all files that the checkpoint's manifest lists are here."""
    try:
        files = json.loads((checkpoint / MANIFEST).read_bytes())["files"]
    except (OSError, ValueError, KeyError):
        return False
    return all((checkpoint / name).is_file() for name in files)


class RunUpload:
    """Puts what is new in the directory of a run: the files of a checkpoint, then its manifest. Writes only
    while it holds the claim.
    """

    def __init__(self, files: Files, bucket: Bucket, run: Path, claim: Claim):
        self._files = files
        self._bucket = bucket
        self._run = run
        self._claim = claim
        self._put: dict[Path, tuple[int, int]] = {}  # small files by modification time and size
        self._saved: set[Path] = set()
        self._begun = False

    @contextmanager
    def going_on(self, refresh: Callable[[], None]) -> Iterator[None]:
        """Meanwhile a thread looks for what is new, and calls `refresh` once a minute."""
        ended = threading.Event()

        def follow() -> None:
            refreshed = time.monotonic()
            while not ended.wait(LOOK_EVERY_SECONDS):
                self._once(last=False)
                if time.monotonic() - refreshed > REFRESHED_EVERY_SECONDS:
                    refreshed = time.monotonic()
                    refresh()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._once(last=True)

    def _once(self, last: bool) -> None:
        """Errors are for the log, as training goes on, but for the `last` time."""
        try:
            whole = set(filter(is_whole, RunHistory(self._run).checkpoints().values()))
            new, retired = sorted(whole - self._saved), self._saved - whole
            if new or retired or last or not self._begun:
                self._claim.confirm()
            if new or last or not self._begun:
                self._small_files()
                self._begun = True
            for checkpoint in new:
                self._checkpoint(checkpoint)
            for checkpoint in retired:
                self._files.remove(checkpoint)
                self._saved.remove(checkpoint)
        except PipelineError as error:
            if last:
                raise
            log.warning("%s: not put in the bucket yet: %s", self._run, first_line(error))

    def _small_files(self) -> None:
        for path in sorted(self._run.rglob("*")):
            inside = path.relative_to(self._run)
            if inside.parts[0] == CHECKPOINTS or any(part.startswith(".") for part in inside.parts):
                continue
            with suppress(FileNotFoundError):  # replaced at this moment
                stat = path.stat()
                if path.is_file() and self._put.get(path) != (stat.st_mtime_ns, stat.st_size):
                    self._files.push(path)
                    self._put[path] = stat.st_mtime_ns, stat.st_size

    def _checkpoint(self, checkpoint: Path) -> None:
        folder = checkpoint.relative_to(self._files.root).as_posix()
        manifest = f"{folder}/{MANIFEST}"
        try:
            content = (checkpoint / MANIFEST).read_bytes()
            files = json.loads(content)["files"]
            there = self._bucket.get(manifest)
            if there is None or there[0] != content:
                self._bucket.delete([manifest])  # of a damaged checkpoint that was made again

                def put(name: str) -> None:
                    path, sha256 = checkpoint / name, files[name]["sha256"]
                    if not self._files.holds(path, sha256):
                        self._bucket.upload(f"{folder}/{name}", path, sha256)

                with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
                    list(threads.map(put, files))
                self._claim.confirm()
                self._bucket.put(manifest, content)
        except FileNotFoundError:  # it was retired meanwhile
            self._files.remove(checkpoint)
            return
        self._saved.add(checkpoint)
