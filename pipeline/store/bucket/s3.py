"""A folder of a bucket on S3, or on a server with the same interface. Needs the extra `s3`.

Every object carries the sha256 of its content as metadata. What fails for a while is tried again with growing
pauses; what a person must change is one sentence without secrets.
"""

import base64
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from pipeline.store.atomic import FULL
from pipeline.store.errors import PipelineError, first_line
from trainer.system.errors import install

log = logging.getLogger(__name__)

SCHEME = "s3"
ATTEMPTS = 6  # with pauses of up to 1, 2, 4, 8 and 16 s between them
SLICE_BYTES = 16_000_000  # of an upload in slices
MOST_SLICES = 9_000  # S3 allows 10,000
READ_BYTES = 1 << 20
CONNECTIONS = 16
DELETED_TOGETHER = 1_000
NONE_YET = ""  # instead of an ETag: there must be no object
OTHER = f'"{"0" * 32}"'  # the ETag of no object
SHA256 = "sha256"
CHANGED = ("PreconditionFailed", "412")
CONFLICT = ("ConditionalRequestConflict", "409")
MISSING = ("NoSuchKey", "404")
EXPIRED = "the session token has expired: get new credentials"
REMEDIES = {
    "RequestTimeTooSkewed": "the clock of this machine is not that of the server: set it, as by NTP",
    "InvalidAccessKeyId": "the access key is unknown to the server: correct AWS_ACCESS_KEY_ID or the profile",
    "SignatureDoesNotMatch": "the secret key is not the one of this access key: correct "
    "AWS_SECRET_ACCESS_KEY or the profile",
    **dict.fromkeys(("ExpiredToken", "InvalidToken", "ExpiredTokenException"), EXPIRED),
}


class BucketError(PipelineError):
    """The bucket cannot be used; the message says what to change."""


class RefusedError(BucketError):
    """The server does not take such a request."""


@dataclass(frozen=True)
class Stored:
    """An object. `modified`: nanoseconds since 1970; `sha256` is empty for what another program put there.
    `age`: seconds since it was modified, both by the server's clock; 0 in listings.
    """

    key: str
    bytes: int
    etag: str
    modified: int
    sha256: str = ""
    age: float = 0.0


@dataclass(frozen=True)
class Bucket:
    """The objects below an address like `s3://bucket/prefix`; a key is the path below it."""

    url: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]*", self._bucket):
            raise BucketError(
                "the address of the store, not shown here, holds more than a bucket before the prefix: write "
                "s3://bucket/prefix, and set credentials and AWS_ENDPOINT_URL in the environment"
            )
        if re.search("[#?]", self.url):
            raise BucketError(f"{self.url}: a prefix without # and ? is needed, choose another")
        if not self.url.startswith(f"{SCHEME}://") or not self._bucket:
            raise BucketError(
                f"{self.url} is not a store: name a directory, or a bucket as s3://bucket/prefix (of another "
                "service, with the endpoint of its S3 interface in AWS_ENDPOINT_URL)"
            )

    def head(self, key: str) -> Stored | None:
        found = self._call("head_object", key, MISSING)
        return found and self._stored(key, found)

    def get(self, key: str, first: int = 0, end: int | None = None) -> tuple[bytes, Stored] | None:
        """The content of a small object, or its bytes from `first` to `end`; None if there is none."""
        content: list[bytes] = []
        found = self._read(key, content.append, lambda _: content.clear(), first, end)
        return (b"".join(content), found) if found else None

    def download(self, key: str, path: Path, make_room: Callable[[int], object]) -> tuple[Stored, str] | None:
        """Writes an object to a file and returns the sha256 of what it wrote. `make_room` gets its size."""
        with path.open("wb") as file:
            digest = hashlib.sha256()

            def write(block: bytes) -> None:
                file.write(block)
                digest.update(block)

            def restart(size: int) -> None:
                nonlocal digest
                make_room(size)
                file.seek(0)
                file.truncate()
                digest = hashlib.sha256()

            found = self._read(key, write, restart)
        return (found, digest.hexdigest()) if found else None

    def put(self, key: str, content: bytes, replacing: str | None = None) -> str:
        """Puts an object and returns its ETag. `replacing`: the ETag of the object that it may replace, or
        NONE_YET; returns an empty one if there is another.
        """
        body = {"Body": content, "ContentMD5": _md5(content), **_sha256(hashlib.sha256(content).hexdigest())}
        return self._conditional("put_object", key, replacing, body)

    def upload(self, key: str, path: Path, sha256: str, replacing: str | None = None) -> str:
        """As `put`, for a file, in slices if it is large."""
        if path.stat().st_size <= SLICE_BYTES:
            return self.put(key, path.read_bytes(), replacing)
        return self._upload_in_slices(key, path, sha256, replacing)

    def _upload_in_slices(self, key: str, path: Path, sha256: str, replacing: str | None) -> str:
        upload = self._call("create_multipart_upload", key, **_sha256(sha256))["UploadId"]
        try:
            done = self._slices(key, path, path.stat().st_size, upload)
            parts = {"UploadId": upload, "MultipartUpload": {"Parts": done}}
            published = self._conditional("complete_multipart_upload", key, replacing, parts)
        except BaseException:
            self._call("abort_multipart_upload", key, UploadId=upload)
            raise
        if not published:
            self._call("abort_multipart_upload", key, UploadId=upload)
        return published

    def _slices(self, key: str, path: Path, size: int, upload: str) -> list[dict[str, Any]]:
        length = max(SLICE_BYTES, -(-size // MOST_SLICES))

        def one(number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek(number * length)
                content = file.read(length)
            named: dict[str, Any] = {"PartNumber": number + 1, "UploadId": upload}
            answer = self._call("upload_part", key, Body=content, ContentMD5=_md5(content), **named)
            return {"ETag": answer["ETag"], "PartNumber": number + 1}

        with ThreadPoolExecutor(4) as threads:
            return list(threads.map(one, range(-(-size // length))))

    def copy(self, source: str, key: str) -> None:
        """Copies an object without moving it through this machine."""
        self._call("copy_object", key, CopySource={"Bucket": self._bucket, "Key": self._name(source)})

    def objects(self, prefix: str) -> Iterator[Stored]:
        """All objects whose key begins so."""
        for page in self._pages("list_objects_v2", Prefix=self._name(prefix)):
            for found in page.get("Contents", ()):
                yield self._stored(found["Key"].removeprefix(self._name("")), found)

    def folders(self, prefix: str) -> list[str]:
        """The names of the folders in a folder, whose `prefix` ends with a slash."""
        pages = self._pages("list_objects_v2", Prefix=self._name(prefix), Delimiter="/")
        found = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ())]
        return [name.removeprefix(self._name(prefix)).rstrip("/") for name in found]

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETED_TOGETHER):
            names = [{"Key": self._name(key)} for key in keys[start : start + DELETED_TOGETHER]]
            answer = self._call("delete_objects", None, Delete={"Objects": names, "Quiet": True})
            if errors := answer.get("Errors"):
                raise BucketError(
                    f"{self.url}: {errors[0]['Key']} cannot be removed ({errors[0]['Code']}): let these "
                    "credentials delete objects (s3:DeleteObject)"
                )

    def unfinished(self) -> list[tuple[str, str, float]]:
        """The uploads in slices that were begun and neither ended nor aborted: key, id, and when they began
        in seconds since 1970.
        """
        return [
            (found["Key"].removeprefix(self._name("")), found["UploadId"], found["Initiated"].timestamp())
            for page in self._pages("list_multipart_uploads", Prefix=self._name(""))
            for found in page.get("Uploads", ())
        ]

    def abort(self, key: str, upload: str) -> None:
        self._call("abort_multipart_upload", key, ("NoSuchUpload", "404"), UploadId=upload)

    def check(self) -> None:
        """Before anything is written: the bucket refuses to replace an object that must not be replaced.
        Raises BucketError.
        """
        marker, content = ".groundwork-store", b"A store of Groundwork.\n"
        self.put(marker, content)
        with NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            sliced = partial(self._upload_in_slices, marker, Path(file.name), "", NONE_YET)
            conditional = {
                "If-None-Match": partial(self.put, marker, content, NONE_YET),
                "If-Match": partial(self.put, marker, content, OTHER),
                "If-None-Match at the end of an upload in slices": sliced,
            }
            for condition, replace in conditional.items():
                try:
                    replaced = replace()
                except RefusedError:
                    replaced = "not even that"
                if replaced:
                    raise BucketError(
                        f"{self.url} does not take conditions ({condition}), without which two runs could "
                        "publish the same version: use S3, or a server that has them"
                    )

    def keeps_versions(self) -> bool:
        """Whether what is removed stays as an old version; False where that may not be asked."""
        with suppress(BucketError):
            return bool(self._call("get_bucket_versioning", None).get("Status") == "Enabled")
        return False

    @property
    def _bucket(self) -> str:
        return self.url.partition("://")[2].partition("/")[0]

    def _name(self, key: str) -> str:
        prefix = self.url.partition("://")[2].partition("/")[2].strip("/")
        return f"{prefix}/{key}" if prefix else key

    @cached_property
    def _client(self) -> Any:
        try:
            import botocore.session
            from botocore.config import Config
        except ModuleNotFoundError as error:
            raise BucketError(f"the store {self.url} needs botocore and s3fs: run {install('s3')}") from error
        config = Config(
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=CONNECTIONS,
            request_checksum_calculation="when_required",  # other servers than S3 may not know the new ones
            response_checksum_validation="when_required",
        )
        with self._explained():
            return botocore.session.get_session().create_client("s3", config=config)

    @cached_property
    def _errors(self) -> Any:
        import botocore.exceptions

        return botocore.exceptions

    def _call(self, operation: str, key: str | None, unless: tuple[str, ...] = (), **arguments: Any) -> Any:
        """The answer of the server; None for an error with a code in `unless`."""
        named = {} if key is None else {"Key": self._name(key)}
        call = getattr(self._client, operation)  # before `_errors`, which needs the library
        with self._explained():
            try:
                return call(Bucket=self._bucket, **named, **arguments)
            except self._errors.ClientError as error:
                if _code(error) in unless:
                    return None
                raise

    def _conditional(self, operation: str, key: str, replacing: str | None, body: dict[str, Any]) -> str:
        condition = {} if replacing is None else {"IfMatch": replacing} if replacing else {"IfNoneMatch": "*"}
        call = getattr(self._client, operation)

        def once() -> str | None:
            try:
                return str(call(Bucket=self._bucket, Key=self._name(key), **condition, **body)["ETag"])
            except self._errors.ClientError as error:
                if _code(error) in CHANGED or (replacing and _code(error) in MISSING):
                    return ""
                if _code(error) in CONFLICT:  # another put of this object was under way
                    return None
                raise

        with self._explained():
            for pause in range(ATTEMPTS):
                if (done := once()) is not None:
                    return done
                time.sleep(2**pause / 4)
        raise BucketError(f"{self.url}/{key}: other writers did not end: run again")

    def _read(
        self,
        key: str,
        write: Callable[[bytes], object],
        restart: Callable[[int], object],
        first: int = 0,
        end: int | None = None,
    ) -> Stored | None:
        """Reads an object block by block, and goes on after what was read when the connection breaks."""
        done, etag, why = first, "", ""
        for failed in range(ATTEMPTS):
            ranged = {"Range": f"bytes={done}-{'' if end is None else end - 1}"} if done or end else {}
            answer = self._call("get_object", key, MISSING, **ranged)
            if answer is None:
                return None
            if etag and answer["ETag"] != etag:
                done, etag, why = first, "", "it was replaced meanwhile"
                continue
            etag, size = answer["ETag"], done + answer["ContentLength"]
            if done == first:
                restart(size)
            try:
                while block := answer["Body"].read(READ_BYTES):
                    write(block)
                    done += len(block)
                if done == size:
                    return self._stored(key, {**answer, "ContentLength": size})
                why = f"{done:,} of {size:,} bytes arrived"
            except (self._errors.BotoCoreError, self._http_errors, OSError) as error:
                if getattr(error, "errno", None) in FULL:  # the disk of this machine
                    raise
                why = first_line(error)
            log.info("%s/%s: %s, reading on from there", self.url, key, why)
            time.sleep(2**failed / 4)
        raise BucketError(f"{self.url}/{key} cannot be read ({why}): check the connection, and run again")

    @cached_property
    def _http_errors(self) -> type[Exception]:
        from urllib3.exceptions import HTTPError

        return HTTPError

    def _pages(self, operation: str, **arguments: Any) -> Iterator[Any]:
        paginator = self._client.get_paginator(operation)
        with self._explained():
            yield from paginator.paginate(Bucket=self._bucket, **arguments)

    def _stored(self, key: str, found: dict[str, Any]) -> Stored:
        size = found["Size"] if "Size" in found else found["ContentLength"]
        modified = int(found["LastModified"].timestamp()) * 1_000_000_000  # listings have fractions
        sha256 = found.get("Metadata", {}).get(SHA256, "")
        now = found.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        age = (parsedate_to_datetime(now) - found["LastModified"]).total_seconds() if now else 0.0
        return Stored(key, size, found["ETag"], modified, sha256, age)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns the errors of the library into one sentence."""
        known = self._errors
        try:
            yield
        except known.ClientError as error:
            raise _explanation(self.url, self._bucket, error) from error
        except (known.NoCredentialsError, known.PartialCredentialsError) as error:
            raise BucketError(
                f"there are no credentials for {self.url}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or AWS_PROFILE for a profile of ~/.aws/credentials"
            ) from error
        except (known.ConnectionError, known.HTTPClientError) as error:
            place = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "Amazon S3"
            raise BucketError(
                f"no server answers for {self.url} at {place} ({type(error).__name__}, {ATTEMPTS} "
                "attempts): check the network, and AWS_ENDPOINT_URL if it is not Amazon's"
            ) from error
        except RecursionError as error:
            raise BucketError(
                f"{self.url}: the server redirects (301) and does not say to which region: set "
                "AWS_DEFAULT_REGION or correct AWS_ENDPOINT_URL"
            ) from error
        except known.BotoCoreError as error:
            raise BucketError(f"{self.url} cannot be used: {first_line(error)}") from error


def _explanation(url: str, bucket: str, error: Any) -> BucketError:
    code, operation, answer = _code(error), error.operation_name, error.response["ResponseMetadata"]
    if code == "NoSuchBucket":
        return BucketError(
            f"there is no bucket {bucket!r}, which the store {url} names: make it, or correct the address"
        )
    if code in REMEDIES:
        return BucketError(f"{url}: {REMEDIES[code]}")
    if answer.get("HTTPStatusCode") == 403:
        return BucketError(
            f"{url}: these credentials may not do {operation} ({code}): let them list, get, put and delete "
            "objects there, or use others"
        )
    said = f"{code}, {first_line(error)}"
    if answer.get("MaxAttemptsReached"):
        return BucketError(f"{url}: {operation} failed ({said}) after {ATTEMPTS} attempts: run again later")
    return RefusedError(
        f"{url}: the server refuses {operation} ({said}): correct the address, the region or its settings"
    )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _sha256(sha256: str) -> dict[str, Any]:
    return {"Metadata": {SHA256: sha256}}
