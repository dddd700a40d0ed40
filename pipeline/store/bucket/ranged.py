"""A file that is open in a bucket: only what is read is fetched."""

from io import SEEK_CUR, SEEK_END, SEEK_SET, RawIOBase

from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.objects import Bucket, StoredObject


class Ranged(RawIOBase):
    """An object as a file for Arrow. Raises BucketError when it was replaced meanwhile."""

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
