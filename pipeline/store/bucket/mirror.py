"""A directory of this machine as the cache of a bucket: a file lies there under the path that it has in the
bucket. Files that never change are fetched once, small ones are pulled and pushed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from io import SEEK_CUR, SEEK_END, SEEK_SET, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from pipeline.store import locks
from pipeline.store.atomic import writable
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.objects import Bucket, StoredObject
from pipeline.store.errors import PipelineError, first_line
from pipeline.store.files import MANIFEST, Files
from trainer.system.durable import atomic_file, write_atomically

FETCHING = ".fetching"
LOCKS = 64
THREADS = 16  # of requests that wait for the network


class FetchError(PipelineError):
    """A file is not in the bucket, or is not what was put there."""


class Mirror(Files):
    """The files of a bucket. Those that were used lately are in the directory `root`, too."""

    shared = True

    def __init__(self, root: Path, bucket: Bucket, cache: Cache):
        super().__init__(root)
        self.bucket = bucket
        self.cache = cache

    @property
    def place(self) -> str:
        return self.bucket.url

    def key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def url(self, path: Path) -> str:
        return f"{self.bucket.url}/{self.key(path)}"

    def head(self, path: Path) -> StoredObject | None:
        return self.bucket.head(self.key(path))

    def listed(self, folder: Path) -> dict[Path, StoredObject]:
        """The objects below a folder, by the paths that they have here."""
        return {self.root / stored.key: stored for stored in self.bucket.objects(self.key(folder))}

    def fetch(self, path: Path) -> Path:
        """One process of this machine fetches a file, others wait."""
        if not path.is_relative_to(self.root):
            return path
        if path.exists():
            self.cache.used(path)
            return path
        lock = self.root / FETCHING / f"{crc32(os.fsencode(path)) % LOCKS:02d}.lock"
        waiting = (
            f"fetching {path.name}: waiting until another file is fetched, or this one by another process"
        )
        with writable(self.root), locks.exclusive(lock, waiting):
            if not path.exists():
                self._download(path)
        return path

    def open(self, path: Path) -> RawIOBase | BinaryIO:
        if path.exists() or not path.is_relative_to(self.root):
            return super().open(path)
        stored = self.head(path)
        if stored is None:
            raise self._missing(path)
        return Ranged(self.bucket, stored)

    def fetch_all(self, paths: Sequence[Path]) -> None:
        together(self.fetch, paths)

    def fetch_folder(self, folder: Path) -> Path:
        """Needs a listing."""
        if folder != self.root and folder.is_relative_to(self.root):
            self.fetch_all(list(self.listed(folder)))
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

    def unlisted(self, folder: Path, sizes: Mapping[str, int]) -> list[str]:
        """Needs a listing."""
        listed = {path: stored.bytes for path, stored in self.listed(folder).items()}
        return [name for name, size in sizes.items() if listed.get(folder / name) != size]

    def removal(self, version: Path) -> str:
        return f"remove {self.url(version / MANIFEST)}"

    def holds(self, path: Path, sha256: str) -> bool:
        stored = self.head(path)
        return stored is not None and stored.sha256 == sha256

    def pull(self, path: Path) -> str | None:
        """The file has the time of the object, too."""
        got = self.bucket.get(self.key(path))
        if got is None:
            path.unlink(missing_ok=True)
            return None
        content, stored = got
        if not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)
        if path.stat().st_mtime_ns != stored.modified:
            os.utime(path, ns=(stored.modified, stored.modified))
        return stored.etag

    def pull_folder(self, folder: Path) -> dict[Path, str]:
        """Needs a listing."""
        listed = self.listed(folder)
        for path in folder.rglob("*"):
            if path.is_file() and path not in listed:
                path.unlink()
        self.pull_changed(listed.items())
        return {path: stored.etag for path, stored in listed.items()}

    def pull_changed(self, listed: Iterable[tuple[Path, StoredObject]]) -> None:
        """As `pull`, for those of the files that differ from the objects."""
        together(self.pull, [path for path, stored in listed if differs(path, stored)])

    def push(self, path: Path, replacing: str | None = None) -> bool:
        return bool(self.bucket.put(self.key(path), path.read_bytes(), replacing))

    def _download(self, path: Path) -> None:
        with atomic_file(path) as temporary:
            fetched = self.bucket.download(self.key(path), temporary, self.cache.make_room)
            if fetched is None:
                raise self._missing(path)
            stored, sha256 = fetched
            if sha256 != (self._sha256_in_manifest(path) or stored.sha256 or sha256):
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

    def _missing(self, path: Path) -> FetchError:
        return FetchError(f"{self.url(path)} is missing: {self._remedy(path)}")

    def _remedy(self, path: Path) -> str:
        version = self._version(path)
        if version is None:
            return "run again"
        return f"{self.removal(version)} and materialize {self.key(version.parent)}"


class Ranged(RawIOBase):
    """An open object as a file for Arrow: only what is read is fetched. Raises BucketError when it was
    replaced meanwhile.
    """

    def __init__(self, bucket: Bucket, there: StoredObject):
        self._bucket, self._there, self._at = bucket, there, 0

    def readable(self) -> bool:
        return True

    seekable = readable

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        self._at = offset + {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._there.bytes}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._there.bytes if size < 0 else min(self._at + size, self._there.bytes)
        found = self._bucket.get(self._there.key, self._at, end) if self._at < end else (b"", self._there)
        if found is None or found[1].etag != self._there.etag:
            raise BucketError(f"{self._bucket.url}/{self._there.key} was lost or replaced: run again")
        self._at = end
        return found[0]


def together(function: Callable[..., object], *arguments: Iterable[Any]) -> None:
    """Calls a function that waits for the network with each of the arguments."""
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(function, *arguments))


def differs(path: Path, stored: StoredObject) -> bool:
    """Whether a small file is missing or, by the ETag of its object, most likely another."""
    if not path.is_file():
        return True
    return f'"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}"' != stored.etag


@lru_cache(maxsize=16)
def _hashes(manifest: Path, _: int) -> dict[str, str]:
    return hashes_in(manifest.read_text(encoding="utf-8"))


def hashes_in(manifest: str) -> dict[str, str]:
    """The sha256 of each file that the manifest of a version or a checkpoint lists."""
    content = json.loads(manifest)
    if "parts" in content:
        files = [file for part in content["parts"] for file in part["files"].values()]
        return {file["path"]: file["sha256"] for file in files}
    return {name: file["sha256"] for name, file in content["files"].items()}
