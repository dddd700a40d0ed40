"""A store in a bucket: its directory on this machine is a cache, in which a file lies under the path that it
has in the bucket.

What is opened is fetched first (`Mirror.fetch`), what was made is put (`Mirror.put_files`). The manifest of a
version is put last and only if there is none, so that it tells readers that the version is complete.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from zlib import crc32

from pipeline.store import locks
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.s3 import NONE_YET, Bucket
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST, Files
from pipeline.store.fingerprint import file_sha256
from pipeline.store.manifest import RECORDS, read_version
from trainer.system.durable import atomic_file, write_atomically

log = logging.getLogger(__name__)

FETCHING = ".fetching"
LOCKS = 64
THREADS = 16  # of requests that wait for the network
COPIED_AT_MOST = 5_000_000_000  # bytes, by S3
# How long a manifest that was found counts as being there still: only `gc` removes one.
KNOWN_SECONDS = 300.0


class FetchError(PipelineError):
    """A file is not in the bucket, or is not what was put there."""


class Mirror(Files):
    """The directory `root` for the store in a bucket."""

    shared = True

    def __init__(self, root: Path, bucket: Bucket, cache: Cache):
        super().__init__(root)
        self.bucket = bucket
        self.cache = cache
        self._known: dict[Path, float] = {}
        self._checked = False

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
        with locks.exclusive(lock, f"fetching {path.name}"):
            if not path.exists():
                self._download(path)
        return path

    def _download(self, path: Path) -> None:
        there = self.bucket.head(self.key(path))
        if there is None:
            raise FetchError(f"{self.url(path)} is missing: {self._remedy(path)}")
        self.cache.make_room(there.bytes)
        with atomic_file(path) as temporary:
            fetched = self.bucket.download(self.key(path), temporary)
            expected = _written(self.root, path) or (fetched and fetched[0].sha256)
            if fetched is None or (expected and fetched[1] != expected):
                raise FetchError(
                    f"{self.url(path)} is not what was written: its sha256 is another: {self._remedy(path)}"
                )
        self.cache.add(path)

    def _remedy(self, path: Path) -> str:
        version = _version(self.root, path)
        if version is None:
            return "run again"
        return f"remove {self.url(version / MANIFEST)} and materialize {self.key(version.parent)}"

    def fetch_all(self, paths: Sequence[Path]) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self.fetch, paths))

    def fetch_folder(self, folder: Path) -> Path:
        """Needs a listing."""
        if folder != self.root and folder.is_relative_to(self.root):
            self.fetch_all([self.root / one.key for one in self.bucket.objects(f"{self.key(folder)}/")])
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
        names = [name for name in self.bucket.folders(f"{self.key(folder)}/") if not name.startswith(".")]
        for manifest in folder.glob(f"[!.]*/{MANIFEST}"):
            if manifest.parent.name not in names:
                manifest.unlink()
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self.pull_manifest, [folder / name for name in names]))

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

    def pull_all(self, paths: Sequence[Path]) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self.pull, paths))

    def pull_folder(self, folder: Path) -> dict[Path, str]:
        """Needs a listing."""
        there = {self.root / one.key: one.etag for one in self.bucket.objects(f"{self.key(folder)}/")}
        for path in folder.rglob("*"):
            if path.is_file() and path not in there:
                path.unlink()
        self.pull_all([path for path, etag in there.items() if self.differs(path, etag)])
        return there

    def differs(self, path: Path, etag: str) -> bool:
        """Whether a small file is missing or, most likely, another than the object with this ETag."""
        return _etag(path) != etag

    def push(self, path: Path, replacing: str | None = None) -> bool:
        return self.bucket.put(self.key(path), path.read_bytes(), replacing)

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
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(partial(self._put, version), written, written.values()))

    def _put(self, version: Path, name: str, sha256: str) -> None:
        """A file that was published meanwhile stays as it is. Raises FetchError when the file is neither here
        nor there.
        """
        path = version / name
        for _ in range(THREADS):
            there = self.bucket.head(self.key(path))
            if there and (there.sha256 == sha256 or self.bucket.head(self.key(version / MANIFEST))):
                break
            if not path.exists():
                raise FetchError(f"{self.url(path)} was lost while it was written: run again")
            if self.bucket.upload(self.key(path), path, sha256, there.etag if there else NONE_YET):
                break
        if path.exists():
            self.cache.add(path)

    def link(self, source: Path, target: Path, size: int) -> bool:
        if size > COPIED_AT_MOST:
            return False
        self.bucket.copy(self.key(source), self.key(target))
        with suppress(FileNotFoundError):  # it is not in the cache
            super().link(source, target, size)
        return True

    def publish(self, made: Path, version: Path, manifest: str) -> bool:
        key, theirs = self.key(version / MANIFEST), None
        if not self.bucket.put(key, manifest.encode(), NONE_YET):
            etag = self.pull(version / MANIFEST)
            try:
                theirs = read_version("", version, self)
            except (OSError, ValueError):  # damaged, so that ours takes its place
                self.bucket.put(key, manifest.encode(), etag)
        ours = _hashes_in(manifest)
        for file in theirs.written if theirs else ():
            if ours.get(file.path) != file.sha256:
                self.drop(version / file.path)
        if not theirs:
            write_atomically(version / MANIFEST, manifest)
        return not theirs

    def remove(self, folder: Path) -> None:
        self.bucket.delete([self.key(folder / MANIFEST)])
        self.unshare(folder)

    def share(self, path: Path) -> None:
        self.bucket.upload(self.key(path), path, file_sha256(path))

    def unshare(self, path: Path) -> None:
        """Needs a listing."""
        there = [one.key for one in self.bucket.objects(self.key(path))]
        name = self.key(path)
        self.bucket.delete([key for key in there if key == name or key.startswith(f"{name}/")])


def _etag(path: Path) -> str:
    """The ETag that S3 mostly gives to a small object with the content of this file."""
    if not path.is_file():
        return ""
    return '"' + hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() + '"'


def _version(root: Path, path: Path) -> Path | None:
    """The version that a file belongs to, if its manifest is in the cache."""
    inside = [parent for parent in path.parents if parent != root and parent.is_relative_to(root)]
    return next((parent for parent in inside if (parent / MANIFEST).is_file()), None)


def _written(root: Path, path: Path) -> str | None:
    """The sha256 that the manifest gives for a file."""
    version = _version(root, path)
    if version is None or path == version / MANIFEST:
        return None
    manifest = version / MANIFEST
    return _hashes(manifest, manifest.stat().st_mtime_ns).get(path.relative_to(version).as_posix())


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
