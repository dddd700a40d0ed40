"""The files of a store in a bucket: its versions, its training runs, and what is removed from it.

The manifest of a version is put last and only if there is none, so that it tells readers that the version is
complete.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from pipeline.store import locks
from pipeline.store.atomic import writable
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.claim import claimed
from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.mirror import FetchError, Mirror, differs, hashes_in, together
from pipeline.store.bucket.objects import NONE_YET, ONE_REQUEST_BYTES, SLICE_BYTES, Bucket, StoredObject
from pipeline.store.bucket.run_upload import RunUpload, whole_manifest
from pipeline.store.errors import PipelineError
from pipeline.store.files import MANIFEST, Files
from pipeline.store.fingerprint import file_sha256
from pipeline.store.keys import RECIPES, RUNS, Key
from pipeline.store.last_versions import VERSION_NAME
from pipeline.store.manifest import RECORDS, read_version
from trainer.system.durable import write_atomically
from trainer.system.paths import at_home
from trainer.system.run_directory import RunDirectory
from trainer.system.run_history import RunHistory

CACHE_VARIABLE = "GROUNDWORK_CACHE"
LIMIT_VARIABLE = "GROUNDWORK_CACHE_BYTES"
ADDRESS = ".bucket"  # in the root of a cache: the address of its bucket
PUT_ATTEMPTS = 16  # of a file that other processes put or remove at the same moment
# How long a manifest that was found counts as being there still: only `gc` removes one.
KNOWN_SECONDS = 300.0
# Another machine may use what nothing names yet, and no lock tells.
YOUNG_SECONDS = 24 * 3600.0
SMALL = {".json", ".jsonl", ".yaml", ".png", ".txt"}
CLAIM = ".trainer"  # held in the bucket by the process that trains a run


class BucketFiles(Mirror):
    """The files of a store in a bucket, in the order of `Files`."""

    def __init__(self, root: Path, bucket: Bucket, cache: Cache):
        super().__init__(root, bucket, cache)
        self._known: dict[Path, float] = {}
        self._etags: dict[Path, str] = {}  # of what this process put into versions in the making
        self._checked = False

    def __reduce__(self) -> tuple[object, tuple[Path, str, int | None]]:
        """Another process gets the address, never credentials."""
        return files_in_bucket, (self.root, self.bucket.url, self.cache.limit)

    def is_version(self, path: Path) -> bool:
        """A directory without a manifest is that of a version in the making."""
        return (path / MANIFEST).is_file()

    def begin(self, version: Path) -> Path:
        """The directory of the version itself, which readers ignore until it has a manifest."""
        if not self._checked:
            self.bucket.check()
            self._checked = True
        shutil.rmtree(version / RECORDS, ignore_errors=True)
        self.pull_folder(version / RECORDS)
        version.mkdir(exist_ok=True)
        return version

    def put_files(self, version: Path, written: Mapping[str, str]) -> None:
        together(partial(self._put, version), written, written.values())

    def put_missing(self, version: Path, written: Mapping[str, tuple[int, str]]) -> None:
        """Needs a listing."""
        listed = self.listed(version)

        def is_there(path: Path, size: int) -> bool:
            stored = listed.get(path)
            if stored is None:
                return False
            return (size, self._etags.pop(path, stored.etag)) == (stored.bytes, stored.etag)

        missing = {name: sha for name, (size, sha) in written.items() if not is_there(version / name, size)}
        self.put_files(version, missing)

    def _put(self, version: Path, name: str, sha256: str) -> None:
        """Uploads a file of a version. A file that another process has published meanwhile stays as it is.
        Raises FetchError when the file is neither here nor there.
        """
        path = version / name
        # a small file is sooner put than asked for
        ask = not path.exists() or path.stat().st_size > SLICE_BYTES
        for _ in range(PUT_ATTEMPTS):
            stored = self.head(path) if ask else None
            if stored and (stored.sha256 == sha256 or self.head(version / MANIFEST)):
                break
            if not path.exists():
                raise FetchError(f"{self.url(path)} was lost while it was written: run again")
            if put := self.bucket.upload(self.key(path), path, sha256, stored.etag if stored else NONE_YET):
                self._etags[path] = put
                break
            ask = True
        if path.exists():
            self.cache.add(path)

    def link(self, source: Path, target: Path, size: int) -> bool:
        if source == target:  # another machine has published the version that is being made here
            return True
        if size > ONE_REQUEST_BYTES:
            return False
        self.bucket.copy(self.key(source), self.key(target))
        with suppress(FileNotFoundError):  # it is not in the cache
            super().link(source, target, size)
            self.cache.add(target)
        return True

    def publish(self, made: Path, version: Path, manifest: str) -> bool:
        key, theirs = self.key(version / MANIFEST), None
        if not self.bucket.put(key, manifest.encode(), NONE_YET):
            etag = self.pull(version / MANIFEST)
            try:
                theirs = read_version(Key.from_path(self.key(version.parent)), version, self)
            except (OSError, ValueError):  # damaged, so that ours takes its place
                self.bucket.put(key, manifest.encode(), etag)
        ours = hashes_in(manifest)
        for file in theirs.written if theirs else ():
            if ours.get(file.path) != file.sha256:
                self.drop(version / file.path)
        if not theirs:
            write_atomically(version / MANIFEST, manifest)
        return not theirs

    def share(self, path: Path) -> None:
        self.bucket.upload(self.key(path), path, file_sha256(path))
        self.cache.add(path)

    def unshare(self, path: Path) -> None:
        """Needs a listing. What is here goes even if something on the way answers with an old one."""
        listed = {stored.key for stored in self.bucket.objects(self.key(path))}
        here = {self.key(file) for file in path.rglob("*") if file.is_file()}
        self.bucket.delete(sorted(listed | here))
        self.bucket.delete([self.key(path)])

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

    def is_saved(self, checkpoint: Path) -> bool:
        return self.pull(checkpoint / MANIFEST) is not None

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

            with RunUpload(self, run, claim).going_on(refresh):
                yield claim.check

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

    def remove(self, folder: Path) -> None:
        self.bucket.delete([self.key(folder / MANIFEST)])
        self.unshare(folder)

    def keeps_removed(self) -> bool:
        return self.bucket.keeps_versions()

    def abort_old_uploads(self) -> None:
        self.bucket.abort_uploads(time.time() - YOUNG_SECONDS)


def _is_of_interest(path: Path) -> bool:
    """Whether other machines read a file of a run: small ones, without the weights and TensorBoard's."""
    return path.suffix in SMALL and "hf" not in path.parts and "tensorboard" not in path.parts


def _is_older(path: Path, stored: StoredObject) -> bool:
    """Whether a file is missing or older than its object. A newer one is being written, or has still to be
    put.
    """
    return not path.exists() or (path.stat().st_mtime_ns < stored.modified and differs(path, stored))


def cache_of(url: str, usual: Path) -> Path:
    """The directory of the store at this address: its cache, in GROUNDWORK_CACHE or else in `usual`. Raises
    BucketError.
    """
    url = url.rstrip("/")
    Bucket(url)
    place = at_home(os.environ.get(CACHE_VARIABLE) or usual).absolute()
    root = place / quote(url.removeprefix("s3://"), safe="")
    if not (root / ADDRESS).is_file():
        with writable(place):
            write_atomically(root / ADDRESS, url + "\n")
    _limit()
    return root


def files_in(root: Path) -> Files:
    """The files of the store whose directory this is: a cache holds the address of its bucket."""
    if not (root / ADDRESS).is_file():
        return Files(root)
    return files_in_bucket(root, (root / ADDRESS).read_text(encoding="utf-8").strip(), _limit())


@cache
def files_in_bucket(root: Path, url: str, limit: int | None) -> BucketFiles:
    """The one object of this process, which keeps connections. Its cache takes at most `limit` bytes."""
    return BucketFiles(root, Bucket(url), Cache(root, limit))


def _limit() -> int | None:
    limit = os.environ.get(LIMIT_VARIABLE)
    if limit and not limit.isdecimal():
        raise BucketError(f"{LIMIT_VARIABLE} is {limit!r}: give a number of bytes, such as 200000000000")
    return int(limit) if limit else None
