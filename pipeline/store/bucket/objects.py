"""The objects of a bucket below a prefix, on S3, Google Cloud Storage or Azure Blob Storage.

Every object carries the sha256 of its content as metadata. What fails for a while is tried again with growing
pauses; what a person must change is one sentence without secrets.
"""

import hashlib
import logging
import mmap
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from pipeline.store.bucket.clouds import SERVICES, Service
from pipeline.store.bucket.errors import (
    BucketError,
    RequestRefusedError,
    UnavailableError,
    another_interface,
    explained,
    is_conflict,
    no_bucket,
    no_credentials,
)
from pipeline.store.errors import first_line
from trainer.system.errors import install

T = TypeVar("T")

log = logging.getLogger(__name__)

ATTEMPTS = 6  # with pauses of up to 1, 2, 4, 8 and 16 s between them, by chance often of 5 s together
PATIENT_SECONDS = 120.0  # for which a server that has answered before is asked again; less than a claim holds
LONGEST_PAUSE_SECONDS = 15.0
SLICE_BYTES = 16_000_000  # of an upload in slices
MOST_SLICES = 9_000  # S3 allows 10,000
SLICES_AT_ONCE = 4
# What S3 (5 GiB) and Azure (5,000 MiB) put or copy in one request. In slices, the library puts without a
# condition.
ONE_REQUEST_BYTES = 5_000_000_000
READ_BYTES = 1 << 20
SILENT_SECONDS = 60  # after which a server that should answer does so no more
PUT_SECONDS = 1800  # for a request: the library counts all the time of sending as silence
DELETED_TOGETHER = 1_000
NONE_YET = ""  # instead of an ETag: there must be no object
CONDITIONS = {  # by what the interface of S3 calls them; no object has this ETag, or is of this generation
    "If-None-Match": "create",
    "If-Match": {"e_tag": f'"{"0" * 32}"', "version": "1"},
}
PAUSE = timedelta(seconds=0.5)  # before the second attempt, twice as long before each further one
MARKER, MARKED = ".groundwork-store", b"A store of Groundwork.\n"
SHA256 = "sha256"
PERMIT_ABORTING = (
    "let these credentials list and abort them (s3:ListBucketMultipartUploads, s3:AbortMultipartUpload)"
)


@dataclass(frozen=True)
class StoredObject:
    """An object. `modified`: nanoseconds since 1970 by the server's clock, in whole seconds; `sha256` is
    empty in listings, and for what another program put there.
    """

    key: str
    bytes: int
    etag: str
    modified: int
    sha256: str


@dataclass(frozen=True)
class Bucket:
    """The objects below an address like `s3://bucket/prefix`; a key is the path below it."""

    url: str
    _answered: Event = field(default_factory=Event, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]*", self.name):
            raise BucketError(
                "the address of the store, not shown here, holds more than a bucket before the prefix: write "
                "s3://bucket/prefix, and set credentials and AWS_ENDPOINT_URL in the environment"
            )
        if re.search("[#?]", self.url):
            raise BucketError(f"{self.url}: a prefix without # and ? is needed, choose another")
        if self.url.partition("://")[0] not in SERVICES or not self.name:
            raise BucketError(
                f"{self.url} is not a store: name a directory, or a bucket as s3://bucket/prefix, "
                "gs://bucket/prefix or az://container/prefix (of another service, as s3:// with the endpoint "
                "of its S3 interface in AWS_ENDPOINT_URL)"
            )

    def head(self, key: str) -> StoredObject | None:
        return self._call("get", lambda: self._stored(self._get(key, head=True)))

    def get(self, key: str, first: int = 0, end: int | None = None) -> tuple[bytes, StoredObject] | None:
        """The content of a small object, or its bytes from `first` to `end`; None if there is none."""

        def read() -> tuple[bytes, StoredObject]:
            found = self._get(key) if end is None else self._get(key, range=(first, end))
            return found.bytes().to_bytes(), self._stored(found)

        return self._call("get", read)

    def download(
        self, key: str, path: Path, make_room: Callable[[int], object]
    ) -> tuple[StoredObject, str] | None:
        """Writes an object to a file and returns the sha256 of what it wrote. `make_room` gets its size."""

        def write() -> tuple[StoredObject, str]:
            found, digest = self._get(key), hashlib.sha256()
            make_room(found.meta["size"])
            with path.open("wb") as file:
                for block in found.stream(min_chunk_size=READ_BYTES):
                    file.write(block)
                    digest.update(block)
            return self._stored(found), digest.hexdigest()

        return self._call("get", write)

    def put(self, key: str, content: bytes, replacing: str | None = None) -> str:
        """Puts an object and returns its ETag. `replacing`: the ETag of the object that it may replace, or
        NONE_YET; returns an empty one if there is another.
        """
        return self._put(self._objects, key, content, hashlib.sha256(content).hexdigest(), replacing)

    def upload(self, key: str, path: Path, sha256: str, replacing: str | None = None) -> str:
        """As `put`, for a file. A large one goes in slices if it may replace whatever is there, and beyond
        5 GB in any case: the library has no condition for slices.
        """
        size = path.stat().st_size
        if size <= SLICE_BYTES:
            return self.put(key, path.read_bytes(), replacing)
        if replacing is not None and size <= ONE_REQUEST_BYTES:
            with path.open("rb") as file:  # mapped, so that it takes no memory
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return self._put(self._patient, key, content, sha256, replacing)
        slices = {"chunk_size": max(SLICE_BYTES, -(-size // MOST_SLICES)), "max_concurrency": SLICES_AT_ONCE}
        return self._put(self._patient, key, path, sha256, None, use_multipart=True, **slices)

    def copy(self, source: str, key: str) -> None:
        """Copies an object without moving it through this machine."""
        if not self._done("copy", lambda: self._library.copy(self._patient, source, key)):
            raise BucketError(f"{self.url}/{source} was lost before it was copied: run again")

    def objects(self, folder: str) -> Iterator[StoredObject]:
        """All objects in a folder and below; in all of the store if `folder` is empty."""
        pages: Any = None
        last: str | None = None

        def page() -> list[Any]:
            nonlocal pages
            pages = pages or self._library.list(self._objects, folder or None, offset=last)
            try:
                return next(pages, [])
            except self._library.exceptions.BaseError:
                pages = None  # to be listed again from `last` on
                raise

        while found := self._call("list", page):
            last = found[-1]["path"]
            yield from map(_listed, found)
        if last is None:
            yield from self._nothing

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        found = self._call("list", lambda: self._library.list_with_delimiter(self._objects, folder or None))
        names = [name.rpartition("/")[2] for name in found["common_prefixes"]] if found else []
        return names or list(self._nothing)

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes the objects with these keys. A missing one is no error."""
        for start in range(0, len(keys), DELETED_TOGETHER):
            together = list(keys[start : start + DELETED_TOGETHER])
            if not self._done("delete", partial(self._library.delete, self._objects, together)):
                for key in together:  # one is missing, and other services than S3 tell
                    self._done("delete", partial(self._library.delete, self._objects, key))

    def check(self) -> None:
        """Checks, before anything is written, that the bucket refuses to replace an object that must not be
        replaced. Raises BucketError.
        """
        self.put(MARKER, MARKED)
        for condition, mode in CONDITIONS.items():
            try:
                replaced = self._put_if(mode, self._objects, MARKER, MARKED)
            except RequestRefusedError:
                replaced = {"e_tag": "not even that"}
            if replaced:
                raise BucketError(
                    f"{self.url} does not take conditions ({condition}), without which two runs could "
                    "publish the same version: use S3, Google Cloud Storage, Azure, or a server that has them"
                )

    def now(self) -> int:
        """The time by the server's clock, as in `StoredObject.modified`. Writes an object."""
        self.put(MARKER, MARKED)
        found = self.head(MARKER)
        return found.modified if found else 0

    def keeps_versions(self) -> bool:
        """Whether what is removed stays as an old version; False where that may not be asked."""
        with suppress(BucketError):
            old, new = (self._put_if("overwrite", self._objects, MARKER, MARKED)["version"] for _ in range(2))
            if old not in (None, new):
                return self._done("get", lambda: self._get(MARKER, head=True, version=old))
        return False

    def abort_uploads(self, before: float) -> None:
        """Aborts uploads in slices that killed processes left, and that began before this time, in seconds
        since 1970. S3 alone keeps them for ever, unseen and paid for; Azure removes them after a week, and no
        library lists those of Google Cloud Storage by its own interface. Raises BucketError.
        """
        if self.service.scheme != "s3":
            return
        import botocore.session
        from botocore.exceptions import BotoCoreError, ClientError

        client: Any = botocore.session.get_session().create_client("s3")
        pages = client.get_paginator("list_multipart_uploads")
        try:
            listed = pages.paginate(Bucket=self.name, Prefix=f"{self.prefix}/".lstrip("/"))
            for found in (one for page in listed for one in page.get("Uploads", ())):
                if found["Initiated"].timestamp() < before:
                    upload = {"Key": found["Key"], "UploadId": found["UploadId"]}
                    with suppress(client.exceptions.NoSuchUpload):  # it has ended meanwhile
                        client.abort_multipart_upload(Bucket=self.name, **upload)
        except (BotoCoreError, ClientError) as error:
            answer = getattr(error, "response", {}).get("ResponseMetadata", {})
            refused = answer.get("HTTPStatusCode") in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            raise BucketError(
                f"{self.url}: unfinished uploads stay ({first_line(error)}), all else was done: "
                + (PERMIT_ABORTING if refused else "the next `gc --delete` tries again")
            ) from error

    @property
    def service(self) -> Service:
        return SERVICES[self.url.partition("://")[0]]

    @property
    def name(self) -> str:
        """What the service calls the bucket."""
        return self.url.partition("://")[2].partition("/")[0]

    @property
    def prefix(self) -> str:
        return self.url.partition("://")[2].partition("/")[2].strip("/")

    @cached_property
    def _library(self) -> Any:
        try:
            import obstore
            import obstore.exceptions
            import obstore.store
        except ModuleNotFoundError as error:
            raise self._missing_package(error) from error
        return obstore

    @cached_property
    def _objects(self) -> Any:
        return self._connect(timeout=timedelta(days=7), read_timeout=timedelta(seconds=SILENT_SECONDS))

    @cached_property
    def _nothing(self) -> tuple[()]:
        """An empty listing. The library also takes any page of a web server for one: raises BucketError for
        what does not answer as a bucket does.
        """
        self.head(MARKER)
        return ()

    @cached_property
    def _patient(self) -> Any:
        """A connection for sending and copying files: a request that is still being sent counts as silent."""
        return self._connect(timeout=timedelta(seconds=PUT_SECONDS))

    def _connect(self, **limits: timedelta) -> Any:
        store = getattr(self._library.store, self.service.store)
        try:
            settings = self.service.settings()
            http = settings.get("endpoint", self.service.endpoint()).startswith("http://")
            return store(
                self.name,
                **settings,
                prefix=self.prefix or None,
                client_options={"connect_timeout": timedelta(seconds=10), "allow_http": http, **limits},
                retry_config={"max_retries": ATTEMPTS - 1, "backoff": {"init_backoff": PAUSE}},
            )
        except ModuleNotFoundError as error:
            raise self._missing_package(error) from error
        except Exception as error:  # each library has its own, of what the environment lacks
            raise no_credentials(self.service, self.url, first_line(error)) from None

    def _missing_package(self, error: ModuleNotFoundError) -> BucketError:
        package = str(error.name).partition(".")[0]
        return BucketError(f"the store {self.url} needs {package}: run {install(self.service.extra)}")

    def _call(self, operation: str, call: Callable[[], T]) -> T | None:
        """What the call returns; None if there is no such object. Raises BucketError."""
        errors, began, attempts = self._library.exceptions, time.monotonic(), 1
        while True:
            try:
                result = call()
                self._answered.set()
                return result
            except FileNotFoundError as error:
                if not no_bucket(error):
                    self._answered.set()
                    return None
                raise explained(self.service, self.url, operation, error) from None
            except errors.BaseError as error:
                why = explained(self.service, self.url, operation, error)
                if not isinstance(why, UnavailableError):
                    raise why from None
                # A server that never answered is most likely another than was meant.
                patient = self._answered.is_set() and time.monotonic() - began < PATIENT_SECONDS
                if not patient and (why.repeated or attempts >= ATTEMPTS):
                    raise why from None
            level = logging.WARNING if why.repeated and attempts == 1 else logging.INFO
            told = "%s: the server could not %s objects, trying again for up to %.0f s"
            log.log(level, told, self.url, operation, PATIENT_SECONDS)
            time.sleep(min(2**attempts / 8, LONGEST_PAUSE_SECONDS))
            attempts += 1

    def _done(self, operation: str, call: Callable[[], object]) -> bool:
        """As `_call`: whether there was such an object."""
        return self._call(operation, lambda: (call(),)) is not None

    def _get(self, key: str, **options: Any) -> Any:
        return self._library.get(self._objects, key, options=options)

    def _put(
        self, store: Any, key: str, content: Any, sha256: str, replacing: str | None, **slices: Any
    ) -> str:
        mode: Any = "overwrite" if replacing is None else "create" if not replacing else {"e_tag": replacing}
        if replacing and self.service.by_generation:
            found = self._call("get", lambda: self._get(key, head=True))
            if not found or found.meta["e_tag"] != replacing:
                return ""
            mode = {"version": found.meta["version"]}
        done = self._put_if(mode, store, key, content, attributes={SHA256: sha256}, **slices)
        return str(done["e_tag"]) if done else ""

    def _put_if(self, mode: Any, store: Any, key: str, content: Any, **how: Any) -> Any:
        """What the library says of the new object; nothing if the mode forbids to put it."""
        errors = self._library.exceptions

        def put() -> Any:
            try:
                return self._library.put(store, key, content, mode=mode, **{"use_multipart": False, **how})
            except (errors.AlreadyExistsError, errors.PreconditionError) as error:
                if mode == "overwrite" or is_conflict(error):
                    raise
                return {}

        done = self._call("put", put)
        if done is None:
            raise BucketError(f"{self.url}/{key}: the server does not know the address: correct it")
        return done

    def _stored(self, answer: Any) -> StoredObject:
        if answer.meta["e_tag"] is None:
            raise another_interface(self.service, self.url)
        return _listed(answer.meta, answer.attributes.get(SHA256, ""))


def _listed(meta: Any, sha256: str = "") -> StoredObject:
    modified = int(meta["last_modified"].timestamp()) * 1_000_000_000  # some answers have fractions
    etag = '"{}"'.format(meta["e_tag"].strip('"'))  # Azure's listings have no quotes
    return StoredObject(meta["path"], meta["size"], etag, modified, sha256)
