"""The files of a store in a bucket: its versions, its training runs, and what is removed from it."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import groupby
from pathlib import Path

from pipeline.store import locks
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.claim import claimed
from pipeline.store.bucket.mirror import differs, together
from pipeline.store.bucket.objects import Bucket, StoredObject
from pipeline.store.bucket.run_upload import RunUpload, whole_manifest
from pipeline.store.bucket.unfinished import abort_unfinished
from pipeline.store.bucket.version_upload import VersionUpload
from pipeline.store.errors import PipelineError
from pipeline.store.files import MANIFEST
from pipeline.store.fingerprint import file_sha256
from pipeline.store.keys import RECIPES, RUNS
from pipeline.store.last_versions import VERSION_NAME
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import RunHistory

# How long a manifest that was found counts as being there still: only `gc` removes one.
KNOWN_SECONDS = 300.0
# Another machine may use what nothing names yet, and no lock tells.
YOUNG_SECONDS = 24 * 3600.0
SMALL = {".json", ".jsonl", ".yaml", ".png", ".txt"}
CLAIM = ".trainer"  # held in the bucket by the process that trains a run


class BucketFiles(VersionUpload):
    """The files of a store in a bucket, in the order of `Files`."""

    def __init__(self, root: Path, bucket: Bucket, cache: Cache):
        super().__init__(root, bucket, cache)
        self._known: dict[Path, float] = {}

    def __reduce__(self) -> tuple[object, tuple[Path, str, int | None]]:
        """Another process gets the address, never credentials."""
        return files_in_bucket, (self.root, self.bucket.url, self.cache.limit)

    def is_version(self, path: Path) -> bool:
        """A directory without a manifest is that of a version in the making."""
        return (path / MANIFEST).is_file()

    def pull_manifest(self, version: Path) -> None:
        if self._known.get(version, 0.0) > time.monotonic():
            return
        if self.pull(version / MANIFEST):
            self._known[version] = time.monotonic() + KNOWN_SECONDS

    def pull_manifests(self, folder: Path) -> None:
        """Needs a listing."""
        names = [name for name in self.bucket.folders(self.key(folder)) if not name.startswith(".")]
        for manifest in folder.glob(f"[!.]*/{MANIFEST}"):
            if manifest.parent.name not in names:
                manifest.unlink()
        together(self.pull_manifest, [folder / name for name in names])

    def keeps_removed(self) -> bool:
        return self.bucket.keeps_versions()

    def remove(self, folder: Path) -> None:
        self.bucket.delete([self.key(folder / MANIFEST)])
        self.unshare(folder)

    def share(self, path: Path) -> None:
        self.bucket.upload(self.key(path), path, file_sha256(path))
        self.cache.add(path)

    def unshare(self, path: Path) -> None:
        """Needs a listing. What is here goes even if something on the way answers with an old one."""
        listed = {stored.key for stored in self.bucket.objects(self.key(path))}
        here = {self.key(file) for file in path.rglob("*") if file.is_file()}
        self.bucket.delete(sorted(listed | here))
        self.bucket.delete([self.key(path)])

    def is_saved(self, checkpoint: Path) -> bool:
        return self.pull(checkpoint / MANIFEST) is not None

    def versions(self) -> dict[Path, int]:
        """Needs a listing of everything."""
        sizes: Counter[Path] = Counter()
        newest: dict[Path, int] = {}  # nanoseconds since 1970
        naming: list[tuple[Path, StoredObject]] = []
        for stored in self.bucket.objects(""):
            path = self.root / stored.key
            version = next((parent for parent in path.parents if VERSION_NAME.fullmatch(parent.name)), None)
            if version is None or stored.key.startswith((f"{RUNS}/", f"{RECIPES}/")):
                continue
            sizes[version] += stored.bytes
            newest[version] = max(newest.get(version, 0), stored.modified)
            if path.name in (MANIFEST, "lineage.json"):
                naming.append((path, stored))
        for path in self.root.rglob(MANIFEST):
            if VERSION_NAME.fullmatch(path.parent.name) and path.parent not in sizes:
                path.unlink()
        self.pull_changed(naming)
        self.pull_runs()
        before = (time.time() - YOUNG_SECONDS) * 1e9
        return {version: size for version, size in sizes.items() if newest[version] < before}

    def abort_old_uploads(self) -> None:
        """Aborts uploads in slices that began more than YOUNG_SECONDS ago."""
        abort_unfinished(self.bucket, time.time() - YOUNG_SECONDS)

    def pull_runs(self, run: Path | None = None) -> None:
        """Needs a listing."""
        folder = run or self.root / RUNS
        listed = self.listed(folder)
        stale = [path for path, stored in listed.items() if _is_of_interest(path) and _is_older(path, stored)]
        for name, files in groupby(stale, lambda path: path.relative_to(self.root).parts[1]):
            with locks.idle_run(self.root / RUNS / name) as nobody_trains:
                together(self.pull, files if nobody_trains else ())
        for directory in [run] if run else folder.glob("[!.]*"):
            for checkpoint in RunHistory(directory).checkpoints().values():
                if checkpoint / MANIFEST not in listed and not whole_manifest(checkpoint):
                    shutil.rmtree(checkpoint, ignore_errors=True)  # removed, and here only by name

    @contextmanager
    def uploading(self, run: Path, reads: Sequence[Path]) -> Iterator[Callable[[], None]]:
        """What the trainer has mapped stays in the cache."""
        with claimed(self.bucket, self.key(run / CLAIM)) as claim:
            self.pull_runs(run)
            if saved := list(RunHistory(run).checkpoints().values()):
                self.fetch_folder(saved[-1])

            def refresh() -> None:
                with suppress(PipelineError):
                    self.pull(RunDirectory(run).keep)  # another machine may have pinned a checkpoint
                for path in reads:
                    self.cache.used(path)

            with RunUpload(self, self.bucket, run, claim).going_on(refresh):
                yield claim.check


def _is_of_interest(path: Path) -> bool:
    """Whether other machines read a file of a run: small ones, without the weights and TensorBoard's."""
    return path.suffix in SMALL and "hf" not in path.parts and "tensorboard" not in path.parts


def _is_older(path: Path, stored: StoredObject) -> bool:
    """Whether a file is missing or older than its object. A newer one is being written, or has still to be
    put.
    """
    return not path.exists() or (path.stat().st_mtime_ns < stored.modified and differs(path, stored))


@cache
def files_in_bucket(root: Path, url: str, limit: int | None) -> BucketFiles:
    """The one object of this process, which keeps connections. Its cache takes at most `limit` bytes."""
    return BucketFiles(root, Bucket(url), Cache(root, limit))
