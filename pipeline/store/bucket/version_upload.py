"""Puts what is written to a version in the bucket.

The manifest of a version is put last and only if there is none, so that it tells readers that the version is
complete.
"""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.mirror import FetchError, Mirror, hashes_in, together
from pipeline.store.bucket.objects import NONE_YET, ONE_REQUEST_BYTES, SLICE_BYTES, Bucket
from pipeline.store.files import MANIFEST
from pipeline.store.keys import Key
from pipeline.store.manifest import RECORDS, read_version
from trainer.system.durable import write_atomically

PUT_ATTEMPTS = 16  # of a file that other processes put or remove at the same moment


class VersionUpload(Mirror):
    """How versions get into the bucket, in the order of `Files`."""

    def __init__(self, root: Path, bucket: Bucket, cache: Cache):
        super().__init__(root, bucket, cache)
        self._etags: dict[Path, str] = {}  # of what this process put into versions in the making
        self._checked = False

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
