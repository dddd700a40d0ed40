"""A store in a bucket: its directory on this machine is a cache, in which a file lies under the path that it
has in the bucket.

What is opened is fetched first (`present`), what was made is put (`Mirror.put_file`). The manifest of a
version is put last and only if there is none, so that it tells readers that the version is complete.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from zlib import crc32

from pipeline.store import locks
from pipeline.store.bucket import NONE_YET, Bucket, BucketError, Stored
from pipeline.store.cache import Cache
from pipeline.store.errors import PipelineError
from pipeline.store.fingerprint import file_sha256
from trainer.system.durable import atomic_file, write_atomically

log = logging.getLogger(__name__)

CACHE_VARIABLE = "GROUNDWORK_CACHE"
LIMIT_VARIABLE = "GROUNDWORK_CACHE_BYTES"
MANIFEST = "manifest.json"
FETCHING = ".fetching"
LOCKS = 64
THREADS = 16  # of requests that wait for the network
# How long a manifest that was found counts as being there still: only `gc` removes one.
KNOWN_SECONDS = 300.0


class FetchError(PipelineError):
    """A file is not in the bucket, or is not what was put there."""


class Address(NamedTuple):
    """What another process needs to know of a mirror. `apart`: workers do not share this directory."""

    root: Path
    url: str
    limit: int | None
    apart: bool


@dataclass
class Mirror:
    """The directory `root` for the store in a bucket."""

    root: Path
    bucket: Bucket
    cache: Cache
    apart: bool = False
    _known: dict[Path, float] = field(default_factory=dict)
    _checked: bool = False

    def key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def url(self, path: Path) -> str:
        return f"{self.bucket.url}/{self.key(path)}"

    def fetch(self, path: Path) -> None:
        """Makes sure that a file is in the cache. One process of this machine fetches it, others wait. Raises
        FetchError.
        """
        if path.exists():
            self.cache.used(path)
            return
        with locks.exclusive(self._lock(path), f"fetching {path.name}"):
            if not path.exists():
                self._download(path)

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
        """As `fetch`, for several files at a time."""
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self.fetch, paths))

    def fetch_folder(self, folder: Path) -> None:
        """Fetches all files of a folder. Needs a listing."""
        self.fetch_all([self.root / one.key for one in self.bucket.objects(f"{self.key(folder)}/")])

    def drop(self, path: Path) -> None:
        """Forgets a damaged file of the cache, so that it is fetched again."""
        path.unlink(missing_ok=True)
        self.cache.forget(path)

    def manifest(self, version: Path) -> None:
        """Makes the manifest in the cache the one in the bucket, or absent if the bucket has none."""
        if self._known.get(version, 0.0) > time.monotonic():
            return
        if self.pull(version / MANIFEST):
            self._known[version] = time.monotonic() + KNOWN_SECONDS

    def manifests(self, folder: Path) -> None:
        """As `manifest`, for all versions of a key. Needs a listing."""
        names = [name for name in self.bucket.folders(f"{self.key(folder)}/") if not name.startswith(".")]
        for manifest in folder.glob(f"[!.]*/{MANIFEST}"):
            if manifest.parent.name not in names:
                manifest.unlink()
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self.manifest, [folder / name for name in names]))

    def pull(self, path: Path) -> Stored | None:
        """Makes a small file the one in the bucket, with its time, or absent if the bucket has none."""
        found = self.bucket.get(self.key(path))
        if found is None:
            path.unlink(missing_ok=True)
            return None
        content, stored = found
        if not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)
        if path.stat().st_mtime_ns != stored.modified:
            os.utime(path, ns=(stored.modified, stored.modified))
        return stored

    def pull_all(self, paths: Sequence[Path]) -> list[Stored | None]:
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(self.pull, paths))

    def sync(self, folder: Path) -> dict[Path, str]:
        """Makes the small files below a folder those of the bucket. Returns their ETags. Needs a listing."""
        there = {self.root / one.key: one.etag for one in self.bucket.objects(f"{self.key(folder)}/")}
        for path in folder.rglob("*"):
            if path.is_file() and path not in there:
                path.unlink()
        self.pull_all([path for path, etag in there.items() if self.differs(path, etag)])
        return there

    def differs(self, path: Path, etag: str) -> bool:
        """Whether a small file is missing or, most likely, another than the object with this ETag."""
        return _etag(path) != etag

    def check(self) -> None:
        """Once, before anything is written. Raises BucketError."""
        if not self._checked:
            self.bucket.check()
            self._checked = True

    def push(self, path: Path, replacing: str | None = None) -> bool:
        """Puts a small file. `replacing` as in `Bucket.put`."""
        return self.bucket.put(self.key(path), path.read_bytes(), replacing)

    def holds(self, path: Path, sha256: str) -> bool:
        """Whether the bucket has this content under this path."""
        there = self.bucket.head(self.key(path))
        return there is not None and there.sha256 == sha256

    def put_file(self, version: Path, name: str, sha256: str) -> None:
        """Makes sure that the bucket has a file of a version in the making. One that was published meanwhile
        stays as it is. Raises FetchError when the file is neither here nor there.
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

    def publish(self, version: Path, content: str) -> bool:
        """Puts the manifest of a version; False if there is one already."""
        return self.bucket.put(self.key(version / MANIFEST), content.encode(), NONE_YET)

    def remove(self, folder: Path) -> None:
        """Removes what is below a folder in the bucket, the manifest first."""
        self.bucket.delete([self.key(folder / MANIFEST)])
        self.bucket.delete([one.key for one in self.bucket.objects(f"{self.key(folder)}/")])

    def _lock(self, path: Path) -> Path:
        return self.root / FETCHING / f"{crc32(os.fsencode(path)) % LOCKS:02d}.lock"


_mirrors: dict[Path, Mirror] = {}


def attach(address: Address) -> Mirror:
    """From now on this process takes the files below a directory for those of a bucket."""
    mirror = _mirrors.get(address.root)
    if mirror is None or mirror.bucket.url != address.url:
        cache = Cache(address.root, address.limit)
        mirror = _mirrors[address.root] = Mirror(address.root, Bucket(address.url), cache, address.apart)
    return mirror


def cached(url: str, usual: Path) -> Path:
    """The directory of the store at this address: its cache, in GROUNDWORK_CACHE or else in `usual`. Raises
    BucketError.
    """
    limit = os.environ.get(LIMIT_VARIABLE)
    if limit and not limit.isdecimal():
        raise BucketError(f"{LIMIT_VARIABLE} is {limit!r}: give a number of bytes, such as 200000000000")
    place = Path(os.environ.get(CACHE_VARIABLE) or usual).absolute()
    root = place / quote(url.removeprefix("s3://").strip("/"), safe="")
    return attach(Address(root, url.rstrip("/"), int(limit) if limit else None, False)).root


def attached(apart: bool = False) -> tuple[Address, ...]:
    """The mirrors of this process, for its workers. `apart`: they may run on other machines."""
    for mirror in _mirrors.values():
        mirror.apart |= apart
    return tuple(
        Address(mirror.root, mirror.bucket.url, mirror.cache.limit, mirror.apart)
        for mirror in _mirrors.values()
    )


def of(path: Path) -> Mirror | None:
    """The mirror that a path belongs to; None for a store that is just a directory."""
    return next((mirror for root, mirror in _mirrors.items() if path.is_relative_to(root)), None)


def present(path: Path) -> Path:
    """The path of a file that is about to be opened. Fetches it if it is in a bucket."""
    if _mirrors and (mirror := of(path)):
        mirror.fetch(path)
    return path


def shared(path: Path) -> Path:
    """The path of a file that a worker wrote for others, which may be on other machines."""
    if _mirrors and (mirror := of(path)) and mirror.apart:
        mirror.bucket.upload(mirror.key(path), path, file_sha256(path))
    return path


def put_files(directory: Path, files: Sequence[tuple[str, str]]) -> None:
    """Puts files of a version in the making, by path in it and sha256, if it belongs in a bucket."""
    if _mirrors and (mirror := of(directory)):
        for path, sha256 in files:
            mirror.put_file(directory, path, sha256)


@contextmanager
def temporary_objects(directory: Path) -> Iterator[None]:
    """What workers share below a directory is removed from the bucket in the end."""
    try:
        yield
    finally:
        if _mirrors and (mirror := of(directory)) and mirror.apart:
            mirror.bucket.delete([one.key for one in mirror.bucket.objects(f"{mirror.key(directory)}/")])


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
    content = json.loads(manifest.read_text(encoding="utf-8"))
    if "parts" in content:
        files = [file for part in content["parts"] for file in part["files"].values()]
        return {file["path"]: file["sha256"] for file in files}
    return {name: file["sha256"] for name, file in content["files"].items()}
