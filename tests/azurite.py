"""Azure Blob Storage on this machine: Azurite, Microsoft's emulator (`npm install --global azurite`)."""

import base64
import hashlib
import hmac
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.client import HTTPConnection

import pytest

from tests.s3_server import BUCKET, listening, objects_of

ACCOUNT = "devstoreaccount1"
# Of the account that every Azurite has, as its documentation says.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2023-11-03"


@dataclass(frozen=True)
class Azurite:
    """`endpoint`: its address, without the account. There is one container."""

    endpoint: str
    scheme: str = "az"

    @property
    def environment(self) -> dict[str, str]:
        settings = {"ACCOUNT_NAME": ACCOUNT, "ACCOUNT_KEY": KEY, "ENDPOINT": f"{self.endpoint}/{ACCOUNT}"}
        return {f"AZURE_STORAGE_{name}": value for name, value in settings.items()}

    def keys(self, prefix: str = "") -> list[str]:
        listed = objects_of(self).list(prefix or None).collect()
        return sorted(found["path"] for found in listed)

    def make_container(self) -> None:
        date = formatdate(usegmt=True)
        resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{VERSION}\n{resource}"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256))
        headers = {
            "x-ms-date": date,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{signature.decode()}",
        }
        connection = HTTPConnection(self.endpoint.removeprefix("http://"))
        connection.request("PUT", f"/{ACCOUNT}/{BUCKET}?restype=container", b"", headers)
        assert connection.getresponse().status == 201


@contextmanager
def azurite() -> Iterator[Azurite]:
    command = shutil.which("azurite-blob")
    if command is None:
        pytest.skip("no Azurite (npm install --global azurite)")
    options = (
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--silent",
        "--disableTelemetry",
        "--blobPort",
    )
    with listening(command, *options) as endpoint:
        server = Azurite(endpoint)
        server.make_container()
        yield server
