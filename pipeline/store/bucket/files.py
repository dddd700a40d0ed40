"""Finds the files of a store: in a directory, or in a bucket whose cache the directory is."""

import os
from functools import cache
from pathlib import Path
from urllib.parse import quote

from pipeline.store.bucket import claims, gc, ranges
from pipeline.store.bucket.cache import Cache
from pipeline.store.bucket.mirror import Mirror
from pipeline.store.bucket.s3 import Bucket, BucketError
from pipeline.store.files import MANIFEST, Files
from trainer.system.durable import write_atomically

CACHE_VARIABLE = "GROUNDWORK_CACHE"
LIMIT_VARIABLE = "GROUNDWORK_CACHE_BYTES"
ADDRESS = ".bucket"  # in the root of a cache: the address of its bucket


class BucketFiles(Mirror):
    """Every file is in the bucket; those that were used lately are in the directory `root`, too."""

    light = ranges.light
    pull_runs = claims.pull_runs
    uploading = claims.uploading
    versions = gc.old_versions
    abort_old_uploads = gc.abort_old_uploads

    def is_saved(self, checkpoint: Path) -> bool:
        return self.pull(checkpoint / MANIFEST) is not None

    def __reduce__(self) -> tuple[object, tuple[Path, str, int | None]]:
        """Another process gets the address, never credentials."""
        return _bucket_files, (self.root, self.bucket.url, self.cache.limit)


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
