"""Which directory of this machine is the cache of a store in a bucket."""

import os
from pathlib import Path
from urllib.parse import quote

from pipeline.store.atomic import writable
from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.files import files_in_bucket
from pipeline.store.bucket.objects import Bucket
from pipeline.store.files import Files
from trainer.system.durable import write_atomically
from trainer.system.paths import at_home

CACHE_VARIABLE = "GROUNDWORK_CACHE"
LIMIT_VARIABLE = "GROUNDWORK_CACHE_BYTES"
ADDRESS = ".bucket"  # in the root of a cache: the address of its bucket


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


def _limit() -> int | None:
    limit = os.environ.get(LIMIT_VARIABLE)
    if limit and not limit.isdecimal():
        raise BucketError(f"{LIMIT_VARIABLE} is {limit!r}: give a number of bytes, such as 200000000000")
    return int(limit) if limit else None
