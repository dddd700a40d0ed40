"""Who trains a run: an object in the bucket that one process at a time holds.

It is only ever replaced on condition of its ETag, so a process that lost it cannot take it back, nor end the
claim of the next one. How old it is, the server's clock says.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.objects import NONE_YET, Bucket, StoredObject
from pipeline.store.errors import PipelineError

log = logging.getLogger(__name__)

CLAIM_SECONDS = 300.0  # after which a claim that was not renewed is over
RENEWED_EVERY_SECONDS = 60.0
LOOK_EVERY_SECONDS = 2.0
FREE = b""  # the content of a claim that was given back


class ClaimLostError(PipelineError):
    """Another process may train the run now, so this one must not write to it any more."""


class Claim:
    """The claim of this process on an object."""

    def __init__(self, bucket: Bucket, key: str):
        self._bucket = bucket
        self._key = key
        self._owner = f"{os.uname().nodename} {os.getpid()} {_processes()} {secrets.token_hex(8)} ".encode()
        self._renewals = 0
        self._etag = NONE_YET
        self._renewed = 0.0
        self._lost = False
        self._renewing = threading.Lock()

    def take(self) -> None:
        """Waits until no other process holds it."""
        said = -RENEWED_EVERY_SECONDS
        while not self._renew():
            found = self._bucket.get(self._key)
            self._etag = found[1].etag if found and self._is_over(*found) else NONE_YET
            if found and not self._etag and time.monotonic() - said > RENEWED_EVERY_SECONDS:
                said = time.monotonic()
                owner = " ".join(found[0].decode().split()[:2])
                log.info("%s: process %s trains it, waiting for that process", self._key, owner)
            time.sleep(0.0 if self._etag else LOOK_EVERY_SECONDS)

    def confirm(self) -> None:
        """Renews the claim, before something is written. Raises ClaimLostError."""
        with suppress(BucketError), self._renewing:  # whether it is too old by now, `check` tells
            self._lost = self._lost or not self._renew()
        self.check()

    def check(self) -> None:
        """Raises ClaimLostError if the claim is lost, or if another process may soon take it. No request."""
        if self._lost or time.monotonic() - self._renewed > CLAIM_SECONDS - RENEWED_EVERY_SECONDS:
            raise ClaimLostError(
                f"{self._bucket.url}/{self._key}: this process has lost its claim on the run, most likely as "
                "it did not reach the bucket for minutes: run again to resume from the newest checkpoint"
            )

    def release(self) -> None:
        with suppress(BucketError):
            self._bucket.put(self._key, FREE, self._etag)

    def _is_over(self, content: bytes, stored: StoredObject) -> bool:
        """Whether it was given back, is of a process of this machine that is gone, or was not renewed."""
        _, process, where = [*content.decode().split(), "", "", ""][:3]
        gone = where == _processes() and not Path(f"/proc/{process}").exists()
        return content == FREE or gone or self._bucket.now() - stored.modified > CLAIM_SECONDS * 1e9

    def _renew(self) -> bool:
        asked = time.monotonic()
        self._renewals += 1  # an ETag is of the content, and another process may know the one before
        etag = self._bucket.put(self._key, self._owner + b"%d\n" % self._renewals, self._etag)
        if not etag:
            found = self._bucket.get(self._key)  # it may be this claim, if an answer was lost
            etag = found[1].etag if found and found[0].startswith(self._owner) else ""
        if etag:
            self._etag, self._renewed = etag, asked
        return bool(etag)


@contextmanager
def claimed(bucket: Bucket, key: str) -> Iterator[Claim]:
    """Only one process holds an object with this key; others wait. Renews the claim meanwhile."""
    claim, ended = Claim(bucket, key), threading.Event()
    claim.take()

    def keep() -> None:
        while not ended.wait(RENEWED_EVERY_SECONDS):
            with suppress(ClaimLostError):
                claim.confirm()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        ended.set()
        thread.join()
        claim.release()


def _processes() -> str:
    """Where process numbers mean what they mean here: in this namespace, until the machine starts again. On a
    system that does not say, in this process alone.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except FileNotFoundError:
        return secrets.token_hex(8)
