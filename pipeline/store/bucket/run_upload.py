"""Puts what a trainer writes to its run in the bucket while it trains."""

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.store.bucket.claim import Claim
from pipeline.store.bucket.mirror import Mirror
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST
from trainer.system.run_history import DROPPED, RunHistory

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
HELD = ".upload-"  # begins the name of a folder of links to what is being put
LOOK_EVERY_SECONDS = 2.0
REFRESHED_EVERY_SECONDS = 60.0
FILES_AT_ONCE = 4


def whole_manifest(checkpoint: Path) -> bytes | None:
    """The manifest of a checkpoint, if all files that it lists are here."""
    seen = b""
    with suppress(OSError, ValueError, KeyError):
        # Once more if it has changed: training takes optimizer files off the manifest before it removes them.
        while (content := (checkpoint / MANIFEST).read_bytes()) != seen:
            if all((checkpoint / name).is_file() for name in json.loads(content)["files"]):
                return content
            seen = content
    return None


class RunUpload:
    """Puts what is new in the directory of a run: the files of a checkpoint, then its manifest. Writes only
    while it holds the claim.
    """

    def __init__(self, files: Mirror, run: Path, claim: Claim):
        self._files = files
        self._run = run
        self._claim = claim
        self._put: dict[Path, tuple[int, int]] = {}  # small files by modification time and size
        self._saved: dict[Path, bytes] = {}  # checkpoints, each with its manifest as the bucket has it
        self._begun = False

    @contextmanager
    def going_on(self, refresh: Callable[[], None]) -> Iterator[None]:
        """Meanwhile a thread looks for what is new, and calls `refresh` once a minute."""
        for leftover in self._run.glob(f"{HELD}*"):  # of a killed process
            shutil.rmtree(leftover, ignore_errors=True)
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
            whole = {
                checkpoint: manifest
                for checkpoint in RunHistory(self._run).checkpoints().values()
                if (manifest := whole_manifest(checkpoint))
            }
            new, retired = whole.keys() - self._saved.keys(), self._saved.keys() - whole.keys()
            smaller = [one for one, manifest in whole.items() if self._saved.get(one, manifest) != manifest]
            if new or retired or smaller or last or not self._begun:
                self._claim.confirm()
            if new or last or not self._begun:
                self._small_files()
                self._begun = True
            # The newest first: until it is there, another machine resumes from an older one, which must keep
            # its optimizer's state there.
            for checkpoint in sorted(new, reverse=True):
                if not self._checkpoint(checkpoint):
                    return
            for checkpoint in smaller:
                self._drop(checkpoint, whole[checkpoint])
            for checkpoint in retired:
                self._files.remove(checkpoint)
                del self._saved[checkpoint]
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

    def _checkpoint(self, checkpoint: Path) -> bool:
        """Whether it is in the bucket now."""
        bucket, manifest = self._files.bucket, self._files.key(checkpoint / MANIFEST)
        try:
            with _held(checkpoint) as (content, files):
                there = bucket.get(manifest)
                if there is None or there[0] != content:
                    bucket.delete([manifest])  # of a damaged checkpoint that was made again

                    def put(name: str) -> None:
                        path, sha256 = files[name]
                        if not self._files.holds(checkpoint / name, sha256):
                            bucket.upload(self._files.key(checkpoint / name), path, sha256)

                    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
                        list(threads.map(put, files))
                    self._claim.confirm()
                    bucket.put(manifest, content)
        except FileNotFoundError:  # it was retired, or lost its optimizer's state, at this moment
            if not checkpoint.exists():
                self._files.remove(checkpoint)
            return False
        self._drop(checkpoint, content)
        return True

    def _drop(self, checkpoint: Path, manifest: bytes) -> None:
        """Removes from the bucket the files that a checkpoint with this manifest has lost: its optimizer's
        state. The manifest is put first, so that the bucket has all that it lists.
        """
        bucket, key = self._files.bucket, self._files.key
        if self._saved.get(checkpoint, manifest) != manifest:
            bucket.put(key(checkpoint / MANIFEST), manifest)
        bucket.delete([key(checkpoint / name) for name in json.loads(manifest).get(DROPPED, ())])
        self._saved[checkpoint] = manifest


@contextmanager
def _held(checkpoint: Path) -> Iterator[tuple[bytes, dict[str, tuple[Path, str]]]]:
    """The manifest of a checkpoint, and a path and the sha256 of each file that it lists: the files stay,
    even if training removes the checkpoint or its optimizer's state before they are all put. Raises
    FileNotFoundError if it is doing so.
    """
    with TemporaryDirectory(prefix=HELD, dir=checkpoint.parents[1]) as folder:
        content, links = (checkpoint / MANIFEST).read_bytes(), {}
        for number, (name, entry) in enumerate(json.loads(content)["files"].items()):
            path = Path(folder) / str(number)
            path.hardlink_to(checkpoint / name)
            links[name] = path, entry["sha256"]
        yield content, links
