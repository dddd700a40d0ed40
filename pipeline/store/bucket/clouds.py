"""The clouds that have buckets: what differs between them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore.store import S3Credential

ASKED_AGAIN = timedelta(minutes=5)  # for credentials, which botocore renews earlier than they end


@dataclass(frozen=True)
class Service:
    """`scheme` begins its addresses; `extra` installs what it needs. `endpoints`: variables for the address
    of another server. `credentials`: what to do if there are none. `store`: obstore's class, which reads the
    environment; `settings`: what it does not find there. `by_generation`: a put is conditional on the
    generation of an object, not on its ETag.
    """

    scheme: str
    name: str
    extra: str
    endpoints: Sequence[str]
    credentials: str
    store: str
    settings: Callable[[], dict[str, Any]] = dict
    by_generation: bool = False

    @property
    def endpoint_variable(self) -> str:
        return self.endpoints[-1]

    def endpoint(self) -> str:
        return next((os.environ[name] for name in self.endpoints if os.environ.get(name)), "")

    def place(self) -> str:
        return self.endpoint() or self.name


class AwsCredentials:
    """As every AWS program reads them: the environment, profiles, single sign-on, the role of the machine."""

    def __init__(self, session: Any):
        self._found = session.get_credentials()
        if self._found is None:
            raise LookupError("none are set, and this machine has no role")

    def __call__(self) -> "S3Credential":
        frozen = self._found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + ASKED_AGAIN,
        }


def _of_aws() -> dict[str, Any]:
    import botocore.session

    session = botocore.session.get_session()
    of_profile = {
        "region": session.get_config_variable("region"),
        "endpoint": S3.endpoint() or session.get_scoped_config().get("endpoint_url"),
    }
    found = {name: value for name, value in of_profile.items() if value}
    return {"credential_provider": AwsCredentials(session), **found}


S3 = Service(
    scheme="s3",
    name="Amazon S3",
    extra="s3",
    endpoints=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    credentials="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of "
    "~/.aws/credentials",
    store="S3Store",
    settings=_of_aws,
)
GOOGLE = Service(
    scheme="gs",
    name="Google Cloud Storage",
    extra="bucket",
    endpoints=("GOOGLE_BASE_URL",),
    credentials="set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account, or log in with "
    "`gcloud auth application-default login`",
    store="GCSStore",
    by_generation=True,
)
AZURE = Service(
    scheme="az",
    name="Azure Blob Storage",
    extra="bucket",
    endpoints=("AZURE_STORAGE_ENDPOINT",),
    credentials="set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
    store="AzureStore",
)
SERVICES = {service.scheme: service for service in (S3, GOOGLE, AZURE)}
