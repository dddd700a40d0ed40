"""The files of a store in a bucket, whose directory on this machine is a cache: a file lies there under the
path that it has in the bucket.

What is opened is fetched first, what was made is put. The manifest of a version is put last and only if there
is none, so that it tells readers that the version is complete.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial
from io import RawIOBase
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from pipeline.store import locks
from pipeline.store.atomic import writable
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.claim import claimed
from pipeline.store.bucket.objects import NONE_YET, SLICE_BYTES, Bucket
from pipeline.store.bucket.ranged import Ranged
from pipeline.store.bucket.run_upload import RunUpload, whole_manifest
from pipeline.store.bucket.unfinished import abort_unfinished
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST, Files
from pipeline.store.fingerprint import file_sha256
from pipeline.store.keys import RECIPES, RUNS, Key
from pipeline.store.last_versions import VERSION_NAME
from pipeline.store.manifest import RECORDS, read_version
from trainer.system.durable import atomic_file, write_atomically
from trainer.system.history import RunHistory
from trainer.system.run_directory import RunDirectory

FETCHING = ".fetching"
LOCKS = 64
THREADS = 16  # of requests that wait for the network
COPIED_AT_MOST = 5_000_000_000  # bytes, by S3
# How long a manifest that was found counts as being there still: only `gc` removes one.
KNOWN_SECONDS = 300.0
# Another machine may use what nothing names yet, and no lock tells.
YOUNG_SECONDS = 24 * 3600.0
SMALL = {".json", ".jsonl", ".yaml", ".png", ".txt"}
CLAIM = ".trainer"  # held in the bucket by the process that trains a run


class FetchError(PipelineError):
    """A file is not in the bucket, or is not what was put there."""


class BucketFiles(Files):
    """The files of a store in a bucket. Those that were used lately are in the directory `root`, too."""

    shared = True

    def __init__(self, root: Path, bucket: Bucket, cache: Cache):
        super().__init__(root)
        self.bucket = bucket
        self.cache = cache
        self._known: dict[Path, float] = {}
        self._etags: dict[Path, str] = {}  # of what this process put into versions in the making
        self._checked = False

    @classmethod
    @cache
    def of(cls, root: Path, url: str, limit: int | None) -> "BucketFiles":
        """The one object of this process, which keeps connections. Its cache takes at most `limit` bytes."""
        return cls(root, Bucket(url), Cache(root, limit))

    def __reduce__(self) -> tuple[object, tuple[Path, str, int | None]]:
        """Another process gets the address, never credentials."""
        return BucketFiles.of, (self.root, self.bucket.url, self.cache.limit)

    @property
    def place(self) -> str:
        return self.bucket.url

    def key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def url(self, path: Path) -> str:
        return f"{self.bucket.url}/{self.key(path)}"

    def fetch(self, path: Path) -> Path:
        """One process of this machine fetches a file, others wait."""
        if not path.is_relative_to(self.root):
            return path
        if path.exists():
            self.cache.used(path)
            return path
        lock = self.root / FETCHING / f"{crc32(os.fsencode(path)) % LOCKS:02d}.lock"
        with writable(self.root), locks.exclusive(lock, f"fetching {path.name}"):
            if not path.exists():
                self._download(path)
        return path

    def open(self, path: Path) -> RawIOBase | BinaryIO:
        if path.exists() or not path.is_relative_to(self.root):
            return super().open(path)
        there = self.bucket.head(self.key(path))
        if there is None:
            raise FetchError(f"{self.url(path)} is missing: {self._remedy(path)}")
        return Ranged(self.bucket, there)

    def _download(self, path: Path) -> None:
        with atomic_file(path) as temporary:
            fetched = self.bucket.download(self.key(path), temporary, self.cache.make_room)
            if fetched is None:
                raise FetchError(f"{self.url(path)} is missing: {self._remedy(path)}")
            if fetched[1] != (self._sha256_in_manifest(path) or fetched[0].sha256 or fetched[1]):
                raise FetchError(
                    f"{self.url(path)} is corrupt, its sha256 differs from that of the manifest: "
                    f"{self._remedy(path)}"
                )
        self.cache.add(path)

    def _version(self, path: Path) -> Path | None:
        """The version that a file belongs to, if its manifest is in the cache."""
        inside = (parent for parent in path.parents if self.root in parent.parents)
        return next((parent for parent in inside if (parent / MANIFEST).is_file()), None)

    def _sha256_in_manifest(self, path: Path) -> str | None:
        """The sha256 that the manifest of its version gives for a file."""
        version = self._version(path)
        if version is None:
            return None
        manifest = version / MANIFEST
        return _hashes(manifest, manifest.stat().st_mtime_ns).get(path.relative_to(version).as_posix())

    def _remedy(self, path: Path) -> str:
        version = self._version(path)
        if version is None:
            return "run again"
        return f"remove {self.url(version / MANIFEST)} and materialize {self.key(version.parent)}"

    def fetch_all(self, paths: Sequence[Path]) -> None:
        _together(self.fetch, paths)

    def fetch_folder(self, folder: Path) -> Path:
        """Needs a listing."""
        if folder != self.root and folder.is_relative_to(self.root):
            self.fetch_all([self.root / one.key for one in self.bucket.objects(self.key(folder))])
        return folder

    def drop(self, path: Path) -> bool:
        path.unlink(missing_ok=True)
        self.cache.forget(path)
        return True

    def fault(self, path: Path, sha256: str) -> str:
        if not self.holds(path, sha256):
            return f"is missing or another in {self.place}"
        try:
            self.fetch(path)
        except FetchError as error:
            return f"cannot be fetched ({first_line(error)})"
        return ""

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
        _together(self.pull_manifest, [folder / name for name in names])

    def pull(self, path: Path) -> str | None:
        """The file has the time of the object, too."""
        found = self.bucket.get(self.key(path))
        if found is None:
            path.unlink(missing_ok=True)
            return None
        content, stored = found
        if not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)
        if path.stat().st_mtime_ns != stored.modified:
            os.utime(path, ns=(stored.modified, stored.modified))
        return stored.etag

    def pull_folder(self, folder: Path) -> dict[Path, str]:
        """Needs a listing."""
        there = {self.root / one.key: one.etag for one in self.bucket.objects(self.key(folder))}
        for path in folder.rglob("*"):
            if path.is_file() and path not in there:
                path.unlink()
        _together(self.pull, [path for path, etag in there.items() if _differs(path, etag)])
        return there

    def push(self, path: Path, replacing: str | None = None) -> bool:
        return bool(self.bucket.put(self.key(path), path.read_bytes(), replacing))

    def begin(self, version: Path) -> Path:
        """The directory of the version itself, which readers ignore until it has a manifest."""
        if not self._checked:
            self.bucket.check()
            self._checked = True
        shutil.rmtree(version / RECORDS, ignore_errors=True)
        self.pull_folder(version / RECORDS)
        version.mkdir(exist_ok=True)
        return version

    def holds(self, path: Path, sha256: str) -> bool:
        there = self.bucket.head(self.key(path))
        return there is not None and there.sha256 == sha256

    def put_files(self, version: Path, written: Mapping[str, str]) -> None:
        _together(partial(self._put, version), written, written.values())

    def put_missing(self, version: Path, written: Mapping[str, tuple[int, str]]) -> None:
        """Needs a listing."""
        there = {self.root / one.key: one for one in self.bucket.objects(self.key(version))}

        def is_there(path: Path, size: int) -> bool:
            one = there.get(path)
            return one is not None and (size, self._etags.pop(path, one.etag)) == (one.bytes, one.etag)

        missing = {name: sha for name, (size, sha) in written.items() if not is_there(version / name, size)}
        self.put_files(version, missing)

    def _put(self, version: Path, name: str, sha256: str) -> None:
        """Uploads a file of a version. A file that another process has published meanwhile stays as it is.
        Raises FetchError when the file is neither here nor there.
        """
        path = version / name
        # a small file is sooner put than asked for
        ask = not path.exists() or path.stat().st_size > SLICE_BYTES
        for _ in range(THREADS):
            there = self.bucket.head(self.key(path)) if ask else None
            if there and (there.sha256 == sha256 or self.bucket.head(self.key(version / MANIFEST))):
                break
            if not path.exists():
                raise FetchError(f"{self.url(path)} was lost while it was written: run again")
            if put := self.bucket.upload(self.key(path), path, sha256, there.etag if there else NONE_YET):
                self._etags[path] = put
                break
            ask = True
        if path.exists():
            self.cache.add(path)

    def link(self, source: Path, target: Path, size: int) -> bool:
        if source == target:  # another machine has published the version that is being made here
            return True
        if size > COPIED_AT_MOST:
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
        ours = _hashes_in(manifest)
        for file in theirs.written if theirs else ():
            if ours.get(file.path) != file.sha256:
                self.drop(version / file.path)
        if not theirs:
            write_atomically(version / MANIFEST, manifest)
        return not theirs

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
        listed = {one.key for one in self.bucket.objects(self.key(path))}
        here = {self.key(file) for file in path.rglob("*") if file.is_file()}
        self.bucket.delete(sorted(listed | here))
        self.bucket.delete([self.key(path)])

    def is_saved(self, checkpoint: Path) -> bool:
        return self.pull(checkpoint / MANIFEST) is not None

    def versions(self) -> dict[Path, int]:
        """Needs a listing of everything."""
        found: dict[Path, tuple[int, int]] = {}
        wanted: dict[Path, str] = {}
        for one in self.bucket.objects(""):
            path = self.root / one.key
            version = next((parent for parent in path.parents if VERSION_NAME.fullmatch(parent.name)), None)
            if version is None or one.key.startswith((f"{RUNS}/", f"{RECIPES}/")):
                continue
            size, newest = found.get(version, (0, 0))
            found[version] = size + one.bytes, max(newest, one.modified)
            if path.name in (MANIFEST, "lineage.json"):
                wanted[path] = one.etag
        for path in self.root.rglob(MANIFEST):
            if VERSION_NAME.fullmatch(path.parent.name) and path.parent not in found:
                path.unlink()
        _together(self.pull, [path for path, etag in wanted.items() if _differs(path, etag)])
        self.pull_runs()
        before = (time.time() - YOUNG_SECONDS) * 1e9
        return {version: size for version, (size, newest) in found.items() if newest < before}

    def abort_old_uploads(self) -> None:
        """Aborts uploads in slices that began more than YOUNG_SECONDS ago."""
        abort_unfinished(self.bucket, time.time() - YOUNG_SECONDS)

    def pull_runs(self, run: Path | None = None) -> None:
        """Needs a listing."""
        folder = run or self.root / RUNS
        stale: list[Path] = []
        there: set[Path] = set()
        for one in self.bucket.objects(self.key(folder)):
            path = self.root / one.key
            there.add(path)
            if path.suffix not in SMALL or "hf" in path.parts or "tensorboard" in path.parts:
                continue
            # what is newer here is being written, or has still to be put
            if not path.exists() or (path.stat().st_mtime_ns < one.modified and _differs(path, one.etag)):
                stale.append(path)
        for name, files in groupby(stale, lambda path: path.relative_to(self.root).parts[1]):
            with locks.idle_run(self.root / RUNS / name) as nobody_trains:
                _together(self.pull, files if nobody_trains else ())
        for directory in [run] if run else folder.glob("[!.]*"):
            for checkpoint in RunHistory(directory).checkpoints().values():
                if checkpoint / MANIFEST not in there and not whole_manifest(checkpoint):
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


def _together(function: Callable[..., object], *arguments: Iterable[Any]) -> None:
    """Calls a function that waits for the network with each of the arguments."""
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(function, *arguments))


def _differs(path: Path, etag: str) -> bool:
    """Whether a small file is missing or, most likely, another than the object with this ETag."""
    if not path.is_file():
        return True
    return f'"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"' != etag


@lru_cache(maxsize=16)
def _hashes(manifest: Path, _: int) -> dict[str, str]:
    return _hashes_in(manifest.read_text(encoding="utf-8"))


def _hashes_in(manifest: str) -> dict[str, str]:
    """The sha256 of each file that the manifest of a version or a checkpoint lists."""
    content = json.loads(manifest)
    if "parts" in content:
        files = [file for part in content["parts"] for file in part["files"].values()]
        return {file["path"]: file["sha256"] for file in files}
    return {name: file["sha256"] for name, file in content["files"].items()}
