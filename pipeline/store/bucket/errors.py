"""What a bucket or the library answers, as one sentence without secrets that says what to change."""

import re

from pipeline.store.bucket.clouds import Service
from pipeline.store.errors import PipelineError

EXPIRED = "the session token has expired: get new credentials"
REMEDIES = {
    "RequestTimeTooSkewed": "the clock of this machine is not that of the server: set it, as by NTP",
    "InvalidAccessKeyId": "the access key is unknown to the server: correct AWS_ACCESS_KEY_ID or the profile",
    "AuthenticationFailed": "the key is not the one of this account: correct AZURE_STORAGE_ACCOUNT_KEY",
    "SignatureDoesNotMatch": "the secret key is not the one of this access key: correct "
    "AWS_SECRET_ACCESS_KEY or the profile",
    **dict.fromkeys(("ExpiredToken", "InvalidToken", "ExpiredTokenException"), EXPIRED),
}
# Of requests that met at one object: the server has taken none of them.
CONFLICTS = ("OperationAborted", "ConditionalRequestConflict")
# What the library does not try again: S3 gives it 400.
TEMPORARY = (*CONFLICTS, "RequestTimeout")
NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
NOT_IMPLEMENTED = "501"
# How the library words what has no class of its own.
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_STATUS = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_SAID = re.compile(r"<Message>([^<]*)")
_AFTER = re.compile(r"after (\d+) retries")
HEADER_MISSING = "Header missing from response"
PROVIDER = "credential provider: "
_DETAILS = "\n\nDebug source"


class BucketError(PipelineError):
    """The bucket cannot be used; the message says what to change."""


class UnavailableError(BucketError):
    """A later attempt may succeed. `repeated`: whether the library has made several."""

    def __init__(self, message: str, repeated: bool):
        super().__init__(message)
        self.repeated = repeated


class RequestRefusedError(BucketError):
    """The server does not take such a request."""


def no_bucket(error: Exception) -> bool:
    return _first_match(_CODE, str(error)) in NO_BUCKET


def is_conflict(error: Exception) -> bool:
    return _first_match(_CODE, str(error)) in CONFLICTS


def no_credentials(service: Service, url: str, why: str) -> BucketError:
    return BucketError(f"there are no credentials for {url} ({why}): {service.credentials}")


def another_interface(service: Service, url: str) -> BucketError:
    """Of what answers and is no such server: the page of a web server, or of the console of one."""
    return BucketError(
        f"what answers for {url} at {service.place()} does not have the interface of {service.name}: correct "
        f"{service.endpoint_variable}"
    )


def explained(service: Service, url: str, operation: str, error: Exception) -> BucketError:
    """An error of the library as one of ours. `operation` is what was asked for, as a verb. The message
    shows nothing of the request but its host, since a query can hold a signature.
    """
    text = str(error).partition(_DETAILS)[0]
    code, status = _first_match(_CODE, text), _first_match(_STATUS, text)
    if code in NO_BUCKET:
        bucket = url.split("/")[2]
        return BucketError(
            f"there is no bucket {bucket!r}, which the store {url} names: make it, or correct the address"
        )
    if HEADER_MISSING in text:
        return another_interface(service, url)
    if code in REMEDIES:
        return BucketError(f"{url}: {REMEDIES[code]}")
    if PROVIDER in text:
        return no_credentials(service, url, text.rpartition(PROVIDER)[2])
    if "token request" in text:
        return no_credentials(service, url, "no server gives them")
    if "Received redirect" in text:
        return BucketError(
            f"{url}: the server redirects (301) and does not say to which region: set "
            f"AWS_DEFAULT_REGION or correct {service.endpoint_variable}"
        )
    if status in ("401", "403") or code == "AccessDenied":
        return BucketError(
            f"{url}: these credentials may not {operation} objects ({code or status}): let them list, get, "
            "put and delete objects there, or use others"
        )
    tried = _first_match(_AFTER, text)
    attempts = f" after {int(tried) + 1} attempts" if tried else ""
    if not status and "HTTP error" in text:
        return UnavailableError(
            f"no server answers for {url} at {service.place()}{attempts}: check the network, and "
            f"{service.endpoint_variable} if it is not {service.name}",
            bool(tried),
        )
    said = (
        f"{code or status}, {_first_match(_SAID, text).strip() or 'no reason given'}"
        if status
        else _last_cause(text)
    )
    if code in TEMPORARY or (attempts and status != NOT_IMPLEMENTED):
        return UnavailableError(
            f"{url}: the server could not {operation} objects ({said}){attempts}: run again later",
            bool(tried),
        )
    return RequestRefusedError(
        f"{url}: the server refuses to {operation} objects ({said}): correct the address, the region, the "
        "credentials or its settings"
    )


def _first_match(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), "").partition("\n")[0] if match else ""


def _last_cause(text: str) -> str:
    """The end of a chain of errors, which has no address."""
    return re.sub(r"\?\S*", "", text.partition("\n")[0].rpartition(" - ")[2])
